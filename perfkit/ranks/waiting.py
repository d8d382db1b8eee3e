"""Of each collective: its own time, and how long each rank waits in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.ranks.matching import Matched
from perfkit.ranks.members import Member


@dataclass(frozen=True)
class Waiting:
    """Lines are collectives, columns members; NaN where a member takes no part.

    `duration` in ns; `own` (a value a collective) is the shortest; `wait` is what a member's kernel takes longer, 0
    where the operation does not synchronise. `lag` is how long after the (lower) median arrival one arrived.
    """

    duration: np.ndarray
    own: np.ndarray
    wait: np.ndarray
    lag: np.ndarray


def divide(members: Sequence[Member], matched: Matched) -> Waiting:
    """Divide each matched collective into its own time and waiting.

    All kernels of a synchronising collective end together, so that one that is shorter by d began d later: arrivals
    follow from durations, whatever the clocks say.
    """
    duration = np.full(matched.rows.shape, np.nan)
    for i, member in enumerate(members):
        here = matched.rows[:, i] >= 0
        duration[here, i] = member.frame["duration_ns"].to_numpy(float)[matched.rows[here, i]]
    if not len(matched):
        return Waiting(duration, np.zeros(0), duration, duration)
    own = np.nanmin(duration, axis=1)
    together = matched.synchronising[:, None]
    wait = np.where(together, duration - own[:, None], np.where(np.isnan(duration), np.nan, 0.0))
    # Of an even number the longer of the two in the middle: of two ranks the one that came first.
    middle = np.array([_upper_median(line) for line in duration])
    lag = np.where(together, np.maximum(middle[:, None] - duration, 0.0), np.where(np.isnan(duration), np.nan, 0.0))
    return Waiting(duration, own, wait, lag)


def _upper_median(values: np.ndarray) -> float:
    known = np.sort(values[~np.isnan(values)])
    return float(known[len(known) // 2]) if len(known) else float("nan")


def per_step(values: np.ndarray, step: np.ndarray, steps: int) -> np.ndarray:
    """Sums of the columns of `values` by step: an array of (steps, members)."""
    result = np.zeros((steps, values.shape[1]))
    np.add.at(result, step, np.nan_to_num(values))
    return result
