"""Which members of one sequence are which of another, where only what is certain counts.

Both sequences show the same launches, but either may lack some. The longest common subsequence pairs as many as
possible without changing the order; a pair counts only if *every* such pairing has it. Where one of three equal
neighbours is missing, nobody can know which: none of the three is paired.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

MOST_CELLS = 120_000_000  # of the table of lengths: 240 MB, about a second


def align(rows: int, columns: int, equal: Callable[[int], Booleans]) -> Integers:
    """For each of `rows` members the one of `columns` that it certainly is, or −1.

    `equal(i)` says which columns row i may be (shape columns). The work is rows · columns; raises `ValueError` above
    `MOST_CELLS`.
    """
    if rows * columns > MOST_CELLS:
        raise ValueError(f"{rows} · {columns} pairs are too many to compare")
    if not rows or not columns:
        return np.full(rows, -1, np.int64)
    after = _lengths_after(rows, columns, equal)
    longest = int(after[0, 0])
    found = np.full(rows, -1, np.int64)
    partners = np.zeros(columns, np.int64)  # rows that each column is with in some best pairing
    before = np.zeros(columns + 1, np.int64)
    for i in range(rows):
        same = equal(i)
        best = same & (before[:-1] + 1 + after[i + 1, 1:] == longest)
        partners += best
        candidates = np.flatnonzero(best)
        needed = int((before + after[i + 1]).max()) < longest  # without row i no pairing is as long
        if len(candidates) == 1 and needed:
            found[i] = candidates[0]
        before = _next(before, same)
    certain = (found >= 0) & (partners[np.maximum(found, 0)] == 1)
    return np.where(certain, found, -1)


def _lengths_after(rows: int, columns: int, equal: Callable[[int], Booleans]) -> npt.NDArray[np.int16 | np.int32]:
    """[i, j]: the longest common subsequence of rows from i on and columns from j on."""
    dtype = np.int16 if min(rows, columns) < 2**15 else np.int32
    after = np.zeros((rows + 1, columns + 1), dtype)
    for i in range(rows - 1, -1, -1):
        # Seen from the end, the recurrence is that of `_next`.
        after[i] = _next(after[i + 1, ::-1].astype(np.int64), equal(i)[::-1])[::-1]
    return after


def _next(lengths: Integers, same: Booleans) -> Integers:
    """The next row of the table of lengths: max(above, left, above left + 1 where equal)."""
    step = np.maximum(lengths[1:], lengths[:-1] + same)
    return np.concatenate([[0], np.maximum.accumulate(step)])
