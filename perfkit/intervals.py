"""Intervals of time: unions, the steps of a capture, and what a union leaves free in them. Whole ns, or real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[Any]  # ns, whole or real
Integers = npt.NDArray[Any]


class Union:
    """The union of intervals [start, end), and how much of it is before a moment; unknown bounds (NaN) are left out.

    `start` and `end` are those of its stretches, `before` the time covered before each of them and in all.
    """

    def __init__(self, start: Times, end: Times) -> None:
        if start.dtype.kind == "f" or end.dtype.kind == "f":
            known = np.isfinite(start) & np.isfinite(end)
            start, end = start[known], end[known]
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        reach = np.maximum.accumulate(end) if len(end) else end
        first = np.ones(len(start), bool)
        first[1:] = start[1:] > reach[:-1]
        self.start = start[first]
        self.end = reach[np.append(np.flatnonzero(first)[1:] - 1, len(reach) - 1)] if len(start) else reach
        self.before = np.concatenate([np.zeros(1, self.end.dtype), np.cumsum(self.end - self.start)])

    @property
    def length(self) -> float:
        """Time covered in all."""
        return float(self.before[-1])

    def until(self, moments: Times) -> Times:
        """Return the time covered before each moment."""
        if not len(self.start):
            return np.zeros(len(moments), self.before.dtype)
        index = np.searchsorted(self.start, moments, side="right") - 1
        at = np.maximum(index, 0)
        part = np.clip(moments - self.start[at], 0, self.end[at] - self.start[at])
        return np.where(index >= 0, self.before[at] + part, 0)

    def inside(self, other: Union) -> float:
        """Return how much of this union is inside `other`."""
        return float((self.until(other.end) - self.until(other.start)).sum())


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
