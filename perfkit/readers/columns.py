"""Columns of words and whole numbers, as readers make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.columns import Booleans, Coded, Integers, Whole

__all__ = ["Booleans", "Coded", "Integers", "Reals", "Whole", "integers", "same"]

Reals = npt.NDArray[np.float64]


def integers(values: Any, known: Booleans | None = None) -> Whole:
    """Whole numbers of a column; absent where negative, or where not `known`."""
    if isinstance(values, Whole):
        return values
    values = np.asarray(values).astype(np.int64)
    return Whole(values, values >= 0 if known is None else known)


def same(word: str, rows: int) -> Coded:
    """A column with the same word in all rows."""
    return Coded([word], np.broadcast_to(np.int32(0), rows))
