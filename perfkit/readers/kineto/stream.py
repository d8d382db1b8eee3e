"""The text of a trace file in pieces that each hold whole events, so that memory does not grow with the file.

A piece ends where one event ends and the next begins, found by the layout of the file's first events. A cut that is
none (the same characters inside a string) leaves a piece that does not decode, and the caller reads the file as a
whole.

A piece is decompressed when it is asked for. A thread that prepared it meanwhile would gain nothing: it needs Python's
lock between any two calls, and each time both threads wait for as long as isal takes to decompress a piece.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from perfkit.errors import InputError

inflating: Any = zlib
_BROKEN: tuple[type[Exception], ...] = (EOFError, zlib.error)
try:
    from isal import isal_zlib

    inflating = isal_zlib  # the functions of zlib, three times as fast
    _BROKEN = (*_BROKEN, inflating.error)
except ImportError:
    pass

AGAIN = "Capture it again."
BEHIND = 16  # bytes in memory behind a piece: so many at once are looked at
PIECE = 1 << 19  # bytes of text decoded at once; twice as many take more memory and no less time
WHOLE = 1 << 28  # bytes of text that may be read as a whole, where no border of events is found
# The largest real traces shrink about 40 times. What shrinks 250 times is no trace but a bomb.
_MOST_SHRUNK, _UNSUSPICIOUS = 250, 1 << 26
_GZIP = b"\x1f\x8b"
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts)")')


class NoBorder(Exception):
    """The layout gives no place to cut; the file must be read as a whole."""


def whole(path: Path) -> bytes:
    """All the text of the file. Raises `InputError` for one that cannot be read, or is too large to read at once."""
    parts, size = [], 0
    for part in blocks(path):
        parts.append(part)
        size += len(part)
        if size > WHOLE:
            raise InputError(
                f"{path} is larger than {WHOLE >> 20} MiB and not laid out as torch.profiler writes a trace.",
                "Give the file as the profiler wrote it.",
            )
    return b"".join(parts)


class Pieces:
    """The text of a file: `head` up to the `[` of the list of events, by iteration the events in pieces that are JSON
    texts of lists, and after that `ending()`.

    A piece takes the memory of the one before, which is gone when the next is asked for: fresh memory for each takes
    longer than copying. Raises `NoBorder` where this layout is not found, `InputError` for a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._source = blocks(path)
        text = next(self._source, b"")
        opening = _list_start(text)
        border = _BORDER.search(text, opening) if opening >= 0 else None
        if border is None:
            raise NoBorder
        self.head, self._rest = text[:opening], text[opening:]
        self._separator = border.group()
        self._memory = np.empty(2 * PIECE, np.uint8).data

    def __iter__(self) -> Iterator[memoryview]:
        for block in self._source:
            at = block.rfind(self._separator)
            if at < 0:  # perhaps the border lies across the two blocks
                block, self._rest = self._rest + block, b""
                at = block.rfind(self._separator)
            if at >= 0:
                yield self._list(self._rest, memoryview(block)[:at])
                self._rest = block[at + len(self._separator) :]
            else:
                self._rest = block
            if len(self._rest) > WHOLE:
                raise NoBorder
            del block  # the next one takes its memory, which is in the cache

    def ending(self) -> bytes:
        """What follows the last border, with the opening that makes it a whole text again."""
        return (b'{"traceEvents":[' if self.head.lstrip()[:1] == b"{" else b"[") + self._rest

    def _list(self, *events: bytes | memoryview) -> memoryview:
        """The text of `events`, which lack the end of the last one, as a list; in memory a zero and `BEHIND` bytes
        follow it."""
        parts = (b"[", *events, self._separator[:1], b"]\0")
        size = sum(map(len, parts))
        if size + BEHIND > len(self._memory):
            self._memory = np.empty(2 * size, np.uint8).data
        at = 0
        for part in parts:
            self._memory[at : at + len(part)] = part
            at += len(part)
        return self._memory[: size - 1]


def _list_start(text: bytes) -> int:
    """Where the first event may begin, −1 where no list of events opens."""
    if text.lstrip()[:1] == b"[":
        return text.index(b"[") + 1
    found = _LIST.search(text)
    return found.end() if found else -1


def blocks(path: Path) -> Iterator[bytes]:
    """The file's text in blocks of about `PIECE` bytes, decompressed.

    Raises `InputError` for a file that cannot be read, is damaged, or grows beyond reason when decompressed.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            yield from _unpacked(file, path) if packed else iter(lambda: file.read(PIECE), b"")
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.", "Give the path of a run folder or profile.") from error
    except _BROKEN as error:
        raise InputError(f"{path} is damaged: its compressed content is broken or cut off.", AGAIN) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


def _unpacked(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """The content of a gzip file of one or several members, at most `PIECE` bytes at a time; checksums are checked."""
    taken = given = 0
    data, member = b"", inflating.decompressobj(wbits=31)
    while True:
        if not data:
            data = file.read(1 << 17)
            taken += len(data)
        if member.eof:
            data = data.lstrip(b"\0")  # padding between and after members
            if not data:
                if file.peek(1) if hasattr(file, "peek") else b"":
                    continue
                return
            member = inflating.decompressobj(wbits=31)
        if not data:
            raise EOFError
        text = member.decompress(data, PIECE)
        data = member.unused_data if member.eof else member.unconsumed_tail
        given += len(text)
        if given > _UNSUSPICIOUS and given > _MOST_SHRUNK * taken:
            raise InputError(
                f"{path} grows more than {_MOST_SHRUNK} times when it is decompressed: that is no trace.",
                "Give a trace that torch.profiler wrote.",
            )
        if text:
            yield text
        del text  # the next block takes its memory
