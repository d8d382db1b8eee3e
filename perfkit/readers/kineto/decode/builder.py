"""Columns built piece by piece: codes for values that repeat, parts of a piece, and columns that grow.

All of it works on whole columns with functions written in C: a million events have ten million values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.readers.kineto.decode.events import Key, MemoryEvents
from perfkit.readers.kineto.decode.typed import Args, Instant

_CODE = struct.Struct("=i")  # an int32 as numpy holds it


class _Numbers(dict[Any, bytes]):
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


class DistinctValues(_Numbers):
    """Distinct values in the order of their first occurrence; the number of one is its place."""

    def _number(self, value: Any) -> int:
        return len(self)


class Memo(_Numbers):
    """The result of `function` for a value, worked out once for each."""

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


_BLOCK = 1 << 17  # rows


class Columns:
    """Named columns of one length; `taken` joins one and forgets it. A block's last part may be unused until then."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}
        self._used = _BLOCK  # rows of the last block of each column

    def add(self, **columns: np.ndarray) -> None:
        """Append to each column; what is wider than the column so far widens it."""
        count, done = len(next(iter(columns.values()))), 0
        while done < count:
            if self._used == _BLOCK:
                self._open(columns)
            taken = min(_BLOCK - self._used, count - done)
            for name, part in columns.items():
                block = self._blocks[name][-1]
                if part.dtype != block.dtype:
                    block = self._widened(name, part.dtype)
                block[self._used : self._used + taken] = part[done : done + taken]
            self._used, done = self._used + taken, done + taken

    def _open(self, columns: Mapping[str, np.ndarray]) -> None:
        """Begin a new block of each column."""
        self._used = 0
        for name, part in columns.items():
            blocks = self._blocks.setdefault(name, [])
            blocks.append(np.empty(_BLOCK, blocks[-1].dtype if blocks else part.dtype))

    def _widened(self, name: str, dtype: Any) -> np.ndarray:
        """The last block of a column that can hold `dtype` too."""
        blocks = self._blocks[name]
        wide = np.promote_types(blocks[-1].dtype, dtype)
        if wide != blocks[-1].dtype:
            blocks[:] = [b.astype(wide) for b in blocks]
        return blocks[-1]

    def taken(self, name: str, dtype: Any = np.int64, change: Callable[[Any], Any] | None = None) -> Any:
        """The whole column, each block put through `change`; in `dtype` where it is empty."""
        blocks = self._blocks.pop(name, [])
        if not blocks:
            return np.empty(0, dtype)
        blocks[-1] = blocks[-1][: self._used]
        if change is not None:
            blocks = [change(b) for b in blocks]
        return np.concatenate(blocks) if len(blocks) > 1 else blocks[0]

    def smallest(self, name: str) -> float | None:
        """The smallest value of a column, None where it is empty."""
        blocks = self._blocks.get(name, [])
        if not blocks:
            return None
        return float(min(b[: self._used if b is blocks[-1] else None].min() for b in blocks))


SEPARATOR = b"\0"  # between texts of the file that are joined; no JSON holds it
_ARGUMENTS = attrgetter("dims", "types", "strides", "concrete")


def recorded(args: Iterable[Args]) -> Iterator[bytes]:
    """Return the recorded arguments of each event as one text, which identifies the kind of call."""
    return map(SEPARATOR.join, map(_ARGUMENTS, args))


def key_of(name: str, text: bytes) -> Key:
    """Return the kind of call of a name and a text that `recorded` gave."""
    dims, types, strides, concrete = text.split(SEPARATOR, 3)
    return (name, dims, types, strides, concrete)


@lru_cache(1024)
def decoded(text: bytes) -> Any:
    """Return the value of a JSON text, not to be changed, for the same text comes back; None where it is damaged."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


class Memory:
    """Takes the allocations and releases in pieces."""

    def __init__(self) -> None:
        self._columns, self._devices, self._threads = Columns(), DistinctValues(), DistinctValues()

    def add(self, events: Sequence[Instant]) -> None:
        """Take over allocations and releases."""
        args = [e.args for e in events]
        if events:
            self._columns.add(
                time=reals([e.ts for e in events]),
                thread=self._threads.column([e.tid for e in events]),
                device=self._devices.column([(a.device, a.index) for a in args]),
                bytes=np.array([a.bytes for a in args], np.float64),
                allocated=np.array([a.allocated for a in args], np.float64),
                reserved=np.array([a.reserved for a in args], np.float64),
                address=np.array([a.address for a in args], np.float64),
            )

    def taken(self, origin_us: float) -> MemoryEvents:
        """Return them as columns, and forget them; the trace begins at `origin_us` of its own clock."""
        time, amount, allocated, reserved, address = (
            self._columns.taken(name, np.float64) for name in ("time", "bytes", "allocated", "reserved", "address")
        )
        thread, device = (self._columns.taken(name, np.int32) for name in ("thread", "device"))
        devices, threads = list(self._devices), list(self._threads)
        origin = origin_us * 1e3
        return MemoryEvents(time * 1e3, thread, amount, allocated, reserved, address, device, devices, threads, origin)


_MOST_IDS = 2**31 - 1


def three_of(text: bytes) -> tuple[int, int, int]:
    """Three sizes, −1 where unknown; some Triton traces hold them as text such as "(64, 1, 1)" or a single number."""
    value = decoded(text)
    if isinstance(value, str):
        value = [int(part) for part in value[:100].strip("()[] ").split(",") if part.strip().isdecimal()]
    sizes = value[:3] if isinstance(value, list) else []
    padded = [n if isinstance(n, int) and 0 <= n <= _MOST_IDS else -1 for n in sizes]
    return tuple([*padded, -1, -1, -1][:3])  # type: ignore[return-value]


def real_of(value: Any) -> float:
    """A number that is finite and not negative, else −1 for absent."""
    return float(value) if type(value) in (int, float) and 0 <= value < 1e18 else -1.0


def small_of(value: int | str | None) -> int:
    """Return a number that fits an id, else −1."""
    return value if isinstance(value, int) and 0 <= value <= _MOST_IDS else -1


def amount_of(value: float | None) -> int:
    """Bytes, −1 where they are unknown or beyond all reason."""
    return int(value) if value is not None and 0 <= value <= 2**62 else -1


def moved_by(args: Args) -> int:
    """Bytes of a copy or a fill, −1 where they are unknown."""
    return amount_of(args.bytes) if args.bytes is not None else whole_of(args.size)


def whole_of(value: int | str | None) -> int:
    """Return the whole number in a text, else −1."""
    text = str(value) if value is not None else ""
    return int(text) if text.isdecimal() and len(text) < 19 else -1
