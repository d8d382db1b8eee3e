"""How wide a block of a matrix is, so that it wastes no lanes and is read in long pieces."""

from __future__ import annotations


def row_tile(columns: int, elements: int) -> tuple[int, int]:
    """(ROWS, COLUMNS), powers of two, of a block of about `elements` elements of a matrix with `columns` columns.

    COLUMNS divides the columns where the divisor is at least 64, and is the next power of two up to 1024 otherwise.
    """
    divisor = columns & -columns
    width = min(1024, divisor if divisor >= 64 else 1 << max(columns - 1, 0).bit_length())
    return max(1, elements // width), width
