"""The own time of each collective, and each rank's waiting in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.ranks import delays
from perfkit.ranks.clocks import on_first
from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import RankClock


@dataclass(frozen=True)
class Waiting:
    """Lines are collectives, columns members; NaN where a member takes no part.

    `duration` in ns; `own` (a value a collective) is the shortest; `wait` is what a member's kernel takes longer, where
    that is due to another rank. `lag` is how long after the (lower) median arrival one arrived that others wait for;
    `late` is the same of the moments at which they could have begun, and `delay` the part of it that is new.
    """

    duration: np.ndarray
    own: np.ndarray
    wait: np.ndarray
    lag: np.ndarray
    late: np.ndarray
    delay: np.ndarray


def divide(members: Sequence[RankTable], matched: Matched, clocks: Sequence[RankClock]) -> Waiting:
    """Divide each matched collective into its own time and waiting.

    All kernels of a synchronising collective end together, so that one that is shorter by d began d later: arrivals
    follow from durations, whatever the clocks say. In another one a rank waits for one that began later, by the clocks.
    """
    duration = np.full(matched.rows.shape, np.nan)
    for i, member in enumerate(members):
        here = matched.rows[:, i] >= 0
        duration[here, i] = member.frame["duration_ns"].to_numpy(float)[matched.rows[here, i]]
    if not len(matched):
        return Waiting(duration, np.zeros(0), duration, duration, duration, duration)
    own = np.nanmin(duration, axis=1)
    together = matched.synchronising[:, None]
    # The longer of the two in the middle of an even number: of two ranks the one that came first.
    middle = np.array([_upper_median(line) for line in duration])
    wait, lag = duration - own[:, None], np.maximum(middle[:, None] - duration, 0.0)
    if not together.all():
        of_root, behind = _by_clocks(members, matched, clocks, wait)
        wait, lag = np.where(together, wait, of_root), np.where(together, lag, behind)
    return Waiting(duration, own, wait, lag, *delays.of(members, matched, duration, wait, lag))


def _by_clocks(
    members: Sequence[RankTable], matched: Matched, clocks: Sequence[RankClock], longer: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Waiting and lag of collectives that a rank may leave early: who is `longer` in one waits no further than until
    the last one begins, and for the one that begins when its wait ends."""
    start = np.full(matched.rows.shape, np.nan)
    for i, (member, clock) in enumerate(zip(members, clocks, strict=True)):
        here = matched.rows[:, i] >= 0
        start[here, i] = on_first(member, members[0], clock, member.start)[matched.rows[here, i]]
    wait = np.clip(np.nanmax(start, axis=1)[:, None] - start, 0.0, longer)
    lag = np.where(np.isnan(start), np.nan, 0.0)
    for k in np.flatnonzero(~matched.synchronising & (np.nan_to_num(wait).max(axis=1) > 0)).tolist():
        first = int(np.nanargmax(wait[k]))
        nearest = np.abs(start[k] - start[k, first] - wait[k, first])
        nearest[first] = np.nan
        lag[k, int(np.nanargmin(nearest))] = _upper_median(wait[k])
    return wait, lag


def _upper_median(values: np.ndarray) -> float:
    known = np.sort(values[~np.isnan(values)])
    return float(known[len(known) // 2]) if len(known) else float("nan")


def per_step(values: np.ndarray, step: np.ndarray, steps: int) -> np.ndarray:
    """Sums of the columns of `values` by step: an array of (steps, members)."""
    result = np.zeros((steps, values.shape[1]))
    np.add.at(result, step, np.nan_to_num(values))
    return result
