"""Unions of intervals of time."""

from __future__ import annotations

import numpy as np


class Union:
    """The union of intervals [start, end) in ns, and how much of it lies inside others."""

    def __init__(self, start: np.ndarray, end: np.ndarray) -> None:
        known = np.isfinite(start) & np.isfinite(end)
        order = np.argsort(start[known], kind="stable")
        start, end = start[known][order], end[known][order]
        reach = np.maximum.accumulate(end) if len(end) else end
        first = np.ones(len(start), bool)
        first[1:] = start[1:] > reach[:-1]
        self.start = start[first]
        self.end = reach[np.append(np.flatnonzero(first)[1:] - 1, len(reach) - 1)] if len(start) else reach
        self._before = np.concatenate([[0.0], np.cumsum(self.end - self.start)])

    @property
    def length(self) -> float:
        """Time covered in all, ns."""
        return float(self._before[-1])

    def until(self, moments: np.ndarray) -> np.ndarray:
        """Covered ns before each moment."""
        if not len(self.start):
            return np.zeros(len(moments))
        index = np.searchsorted(self.start, moments, side="right") - 1
        at = np.maximum(index, 0)
        part = np.clip(moments - self.start[at], 0.0, self.end[at] - self.start[at])
        return np.where(index >= 0, self._before[at] + part, 0.0)

    def inside(self, other: Union) -> float:
        """Return the length of this union inside `other`."""
        return float((self.until(other.end) - self.until(other.start)).sum())
