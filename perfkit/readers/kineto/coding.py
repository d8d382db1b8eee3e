"""Codes for values that repeat, and columns of some events among others.

All of it works on whole columns with functions written in C: a million events have ten million values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any

import numpy as np

from perfkit.readers.kineto.events import Booleans, Integers

SEPARATOR = b"\0"  # between texts of the file that are joined; no JSON holds it
_CODE = struct.Struct("=i")  # an int32 as numpy holds it


class _Coded(dict[Any, bytes]):
    """Gives each value a number, worked out when it first comes, and keeps that as the bytes of an int32.

    A column is then one join of bytes, in half the time that an array of Python's numbers takes.
    """

    def __missing__(self, value: Any) -> bytes:
        code = self[value] = _CODE.pack(self._number(value))
        return code

    def _number(self, value: Any) -> int:
        raise NotImplementedError

    def code(self, value: Any) -> int:
        """The number of `value`."""
        return int(_CODE.unpack(self[value])[0])

    def column(self, values: Iterable[Any]) -> Integers:
        """The number of each of `values`."""
        return np.frombuffer(b"".join(map(self.__getitem__, values)), np.int32)


class Table(_Coded):
    """Distinct values in the order of their first occurrence; the number of one is its place."""

    def _number(self, value: Any) -> int:
        return len(self)


class Memo(_Coded):
    """What `function` gives for a value, worked out once for each."""

    def __init__(self, function: Callable[[Any], int]) -> None:
        super().__init__()
        self._function = function

    def _number(self, value: Any) -> int:
        return self._function(value)


class Some:
    """Some of the events, those where `mask` holds."""

    def __init__(self, mask: Booleans) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self._all = self.count == len(mask)

    def of(self, values: Any) -> Any:
        """Their part of a column: an array of an array, else a sequence."""
        if self._all:
            return values
        return values[self.mask] if isinstance(values, np.ndarray) else list(compress(values, self.mask.tobytes()))

    def spread(self, values: Integers) -> Integers:
        """The column of all events that has `values` at these and −1 at the others."""
        if self._all:
            return values
        column = np.full(len(self.mask), -1, values.dtype)
        column[self.mask] = values
        return column


def reals(values: Sequence[float]) -> Integers:
    """Real numbers as a column. Packed by `struct` they take half the time that NumPy needs to read a list."""
    return np.frombuffer(struct.pack(f"={len(values)}d", *values))


def tight(values: Sequence[int]) -> Integers:
    """Whole numbers in 32 bits where they fit, else in 64."""
    try:
        return np.frombuffer(struct.pack(f"={len(values)}i", *values), np.int32)
    except struct.error:
        return np.frombuffer(struct.pack(f"={len(values)}q", *values), np.int64)


def distinct(values: Integers) -> tuple[Integers, Integers]:
    """The distinct values in order, and for each value its place among them: what `np.unique` gives, by hashing, in a
    fraction of its time."""
    import pandas as pd

    codes, used = pd.factorize(values, sort=True)
    return used, codes
