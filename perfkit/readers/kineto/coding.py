"""Codes for values that repeat, and columns of some events among others.

All of it works on whole columns with functions written in C: a million events have ten million values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from perfkit.readers.kineto.events import Booleans, Integers


class _Codes(dict[Any, int]):
    """Gives a value that it does not hold yet the next code."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


@dataclass
class Table:
    """Distinct values in the order of their first occurrence; `code` gives the place of one, adding it when new."""

    codes: _Codes = field(default_factory=_Codes)

    def code(self, value: Any) -> int:
        return self.codes[value]

    def column(self, values: Iterable[Any], count: int) -> Integers:
        """The code of each of `count` values."""
        return np.fromiter(map(self.codes.__getitem__, values), np.int32, count)

    @property
    def values(self) -> list[Any]:
        return list(self.codes)


class Memo(dict[Any, int]):
    """What `function` gives for a value, worked out once for each."""

    def __init__(self, function: Callable[[Any], int]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, value: Any) -> int:
        result = self[value] = self._function(value)
        return result

    def column(self, values: Iterable[Any], count: int) -> Integers:
        """The result for each of `count` values."""
        return np.fromiter(map(self.__getitem__, values), np.int32, count)


class Some:
    """Some of the events, those where `mask` holds."""

    def __init__(self, mask: Booleans) -> None:
        self._mask = mask
        self._all = bool(mask.all())
        self.count = len(mask) if self._all else int(np.count_nonzero(mask))

    def of(self, values: Any) -> Any:
        """Their part of a column: an array of an array, else a sequence."""
        if self._all:
            return values
        return values[self._mask] if isinstance(values, np.ndarray) else list(compress(values, self._mask.tolist()))

    def spread(self, values: Integers) -> Integers:
        """The column of all events that has `values` at these and −1 at the others."""
        if self._all:
            return values
        column = np.full(len(self._mask), -1, values.dtype)
        column[self._mask] = values
        return column


def tight(values: Sequence[int]) -> Integers:
    """Whole numbers in 32 bits where they fit, else in 64."""
    try:
        return np.fromiter(values, np.int32, len(values))
    except OverflowError:
        return np.fromiter(values, np.int64, len(values))
