"""Intervals of time: unions, steps, and what a union leaves free in the steps. Times are whole ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit.columns import Integers
from perfkit.intervals import Union


@dataclass
class Steps:
    """The steps of a capture in order: bounds in ns, and the thread that ran them. `marked`: a range marks each,
    `names` are those of the ranges, and `evidence` says what else shows the steps."""

    start: Integers
    end: Integers
    lane: int
    marked: bool
    names: tuple[str, ...] = ()
    evidence: str = ""

    def at(self, moments: Integers) -> Integers:
        """Index of the step around each moment, or −1."""
        if not len(self.start):
            return np.full(len(moments), -1, np.int64)
        index = np.searchsorted(self.start, moments, side="right") - 1
        inside = (index >= 0) & (moments < self.end[np.maximum(index, 0)])
        return np.where(inside, index, -1)


def stretches(cover: Union, steps: Steps) -> tuple[Integers, Integers, Integers]:
    """Start and end of the stretches inside the steps that `cover` leaves free, and when each began.

    For the first of a step that may be before the step.
    """
    starts, ends, begun = ([np.empty(0, np.int64)] for _ in range(3))
    for begin, end in zip(steps.start.tolist(), steps.end.tolist(), strict=True):
        low = int(np.searchsorted(cover.end, begin, side="right"))
        high = int(np.searchsorted(cover.start, end, side="left"))
        begun.append(np.append(cover.end[low - 1] if low else begin, cover.end[low:high]))
        starts.append(np.maximum(begun[-1], begin))
        ends.append(np.minimum(np.append(cover.start[low:high], end), end))
    start, end_, began = (np.concatenate(column) for column in (starts, ends, begun))
    real = end_ > start
    return start[real], end_[real], began[real]


def by_cause_alone(gaps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Gaps summed over passes: cause, ns and number of stretches, the longest first."""
    found: dict[str, dict[str, Any]] = {}
    for gap in gaps:
        entry = found.setdefault(gap["cause"], {"cause": gap["cause"], "ns": 0, "count": 0})
        entry["ns"] += gap["ns"]
        entry["count"] += gap["count"]
    return sorted(found.values(), key=lambda entry: -entry["ns"])
