"""Distinct whole numbers of a column, medians and percentiles.

Codes, threads and steps lie close together: a table of the numbers from the smallest to the largest takes a fraction of
the time in which `np.unique` sorts them. And `np.unique`, `np.median` and `np.percentile` import numpy.ma, which takes
longer still.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[Any]


def unique(values: Integers) -> Integers:
    """The distinct whole numbers among `values`, in order."""
    low, there = _there(values)
    if there is not None:
        return np.flatnonzero(there).astype(values.dtype) + values.dtype.type(low)
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])]


def numbered(values: Integers) -> tuple[Integers, Integers]:
    """The distinct whole numbers in order, and for each value its place among them."""
    low, there = _there(values)
    if there is None:
        used, codes = np.unique(values, return_inverse=True)
        return used, codes
    used = np.flatnonzero(there).astype(values.dtype) + values.dtype.type(low)
    return used, (np.cumsum(there) - 1)[values.astype(np.int64) - low]


def _there(values: Integers) -> tuple[int, npt.NDArray[np.bool_] | None]:
    """The smallest value, and which of the numbers from there to the largest are among `values`; None for too many."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > 4 * len(values) + 1024:
        return low, None
    there = np.zeros(high - low + 1, bool)
    there[values.astype(np.int64) - low] = True
    return low, there


def among(values: Integers, others: Integers) -> npt.NDArray[np.bool_]:
    """Return which of `values` are one of `others`."""
    if not len(others):
        return np.zeros(len(values), bool)
    others = unique(others)
    return np.asarray(others[np.minimum(np.searchsorted(others, values), len(others) - 1)] == values)


def first_rows(codes: Integers, count: int) -> Integers:
    """For each of `count` codes, all of which occur, the first row that has it."""
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of rows with one code the last to be written stays
    return first


def percentile(values: Integers, percent: float) -> float:
    """What `np.percentile` gives: between two values by their distance."""
    values = np.sort(values)
    at = (len(values) - 1) * (percent / 100)
    low = int(at)
    part = at - low
    below, above = values[low], values[min(low + 1, len(values) - 1)]
    # From the nearer of the two, as NumPy does.
    return float(below + (above - below) * part if part < 0.5 else above - (above - below) * (1 - part))


def median(values: Integers) -> float:
    """What `np.median` gives of known values."""
    values, half = np.sort(values), len(values) // 2
    return float(values[half]) if len(values) % 2 else (float(values[half - 1]) + float(values[half])) / 2
