"""The text of a trace file, plain or compressed, in blocks.

A block is decompressed when it is asked for. A thread that prepared it meanwhile would gain nothing: it needs Python's
lock between any two calls, and each time both threads wait for as long as isal takes to decompress a block.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

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
RECORD = "Record one with torch.profiler (`perfkit capture -- COMMAND` does), and give its trace."
PIECE = 1 << 19  # bytes of text decoded at once; twice as many take more memory and no less time
# The largest real traces shrink about 40 times. What shrinks 250 times is no trace but a bomb.
_MOST_SHRUNK, _UNSUSPICIOUS = 250, 1 << 26
_GZIP = b"\x1f\x8b"


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
