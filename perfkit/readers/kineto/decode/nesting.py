"""The structure of JSON text: which of its bytes lie inside strings, and how deep the others are nested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perfkit.readers.columns import Integers

COMMA, OPENING, CLOSING = b",[]"
_QUOTE, _BACKSLASH = b'"\\'
_PART = 1 << 16  # bytes looked at together: small enough that no array is made of fresh memory
_MARKS = bytes(byte if byte in b'"\\,[]{}' else 0 for byte in range(256))
_STEP = np.zeros(256, np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


class Marks(NamedTuple):
    """Commas, brackets and braces outside of strings, as columns: their places in the text, what they are, and how many
    brackets and braces are open behind each."""

    place: Integers
    byte: Integers
    depth: Integers


class Nesting:
    """Follows JSON text from its beginning, part by part."""

    def __init__(self) -> None:
        self._depth, self._inside, self._escaped = 0, False, False

    def follow(self, text: bytes | bytearray, begin: int, end: int) -> Iterator[Marks]:
        """The marks of `text` from `begin` to `end`, some at a time."""
        for first in range(begin, end, _PART):
            place, byte, depth = self._follow(bytes(text[first : min(first + _PART, end)]))
            yield Marks(place + first, byte, depth)

    def _follow(self, part: bytes) -> Marks:
        marks = np.frombuffer(part.translate(_MARKS), np.uint8)
        place = np.flatnonzero(marks != 0)  # five times as fast as of the bytes themselves
        byte = marks[place]
        if self._escaped or b"\\" in part:
            kept = self._unescaped(place, byte, len(part))
            place, byte = place[kept], byte[kept]
        outside = (np.cumsum(byte == _QUOTE, dtype=np.uint8) & 1) == self._inside
        depth = self._depth + np.cumsum(_STEP[byte] * outside, dtype=np.int64)
        if len(place):
            self._depth, self._inside = int(depth[-1]), not outside[-1]
        chosen = outside & (byte != _QUOTE)
        return Marks(place[chosen], byte[chosen], depth[chosen])

    def _unescaped(self, place: Integers, byte: Integers, size: int) -> Integers:
        """Which marks of a part of `size` bytes are neither backslashes nor behind one that escapes them."""
        slash = place[byte == _BACKSLASH]
        if self._escaped:
            slash = np.append(-1, slash)
        first = np.flatnonzero(np.diff(slash, prepend=-3) != 1)  # of each run of backslashes
        length = np.diff(first, append=len(slash))
        behind = (slash[first + length - 1] + 1)[length % 2 == 1]
        self._escaped = bool(len(behind) and behind[-1] == size)
        return (byte != _BACKSLASH) & ~np.isin(place, behind)
