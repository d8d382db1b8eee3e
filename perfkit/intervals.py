"""Unions of intervals of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[Any]  # ns, whole or real


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
