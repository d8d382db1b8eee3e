"""The outside of an Nsight Compute report: is the file whole, and how many results must come out of it?

A report is `NVR\\0`, the length of a header, the header, and blocks up to the end of the file: the length of a block
header, the block header, the payload. All lengths are little-endian 32 bit; headers are protocol buffers. In a block
header field 2 counts the results of the block and field 5 is the length of its payload. There is no checksum: this
finds what was cut off or overwritten coarsely, and tells what the reader behind it must give back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from perfkit.errors import InputError

MAGIC = b"NVR\0"
RESULTS, PAYLOAD = 2, 5  # fields of a block header
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers
_MAX_HEADER = 1 << 28  # the string table of a report lies in a header; those of full reports take about 0.1 MB


@dataclass
class Container:
    """What the container states: for each result, in file order, the bytes of payload that it takes."""

    sizes: list[int] = field(default_factory=list)

    @property
    def results(self) -> int:
        return len(self.sizes)


class _Damaged(Exception):
    """Why the bytes are not a report."""


def check(path: Path) -> Container:
    """Walk the blocks of the report at `path`. Raises `InputError` for a file that is missing, cut short or damaged."""
    try:
        with path.open("rb") as file:
            return _walk(file, os.fstat(file.fileno()).st_size)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.", "Give the path of a report (.ncu-rep).") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except _Damaged as error:
        raise InputError(f"{path} is a damaged Nsight Compute report: {error}.", _AGAIN) from error


_AGAIN = "Copy it again from where it was captured, or capture it again."


def _walk(file: BinaryIO, size: int) -> Container:
    if size == 0:
        raise _Damaged("it is empty")
    if file.read(4) != MAGIC:
        raise _Damaged("it does not begin like one")
    _read_header(file, size, "the file's header")
    found = Container()
    while (position := file.tell()) < size:
        fields = _fields(_read_header(file, size, f"the block at byte {position}"), position)
        results, payload = fields.get(RESULTS, 0), fields.get(PAYLOAD, 0)
        end = file.tell() + payload
        if end > size:
            raise _Damaged(f"it ends {end - size} bytes early, after {found.results} whole results")
        if results > max(payload, 0):
            raise _Damaged(f"the block at byte {position} states {results} results in {payload} bytes")
        found.sizes += [payload // results] * results if results else []
        file.seek(end)
    if not found.results:
        raise _Damaged("it holds no results")
    return found


def _read_header(file: BinaryIO, size: int, what: str) -> bytes:
    """A length and that many bytes."""
    left = size - file.tell()
    if left < 4:
        raise _Damaged(f"it ends within the length of {what}")
    length = int.from_bytes(file.read(4), "little")
    if length > min(left - 4, _MAX_HEADER):
        raise _Damaged(f"it ends within {what}, which would be {length} bytes long")
    return file.read(length)


def _fields(header: bytes, position: int) -> dict[int, int]:
    """The integers of a block header by field. Raises `_Damaged` for no protocol buffer, or a field of another type."""
    found: dict[int, int] = {}
    at = 0
    while at < len(header):
        tag, at = _varint(header, at, position)
        number, wire = tag >> 3, tag & 7
        if number in (RESULTS, PAYLOAD) and wire != _VARINT:
            raise _Damaged(f"the header of the block at byte {position} has a field of a wrong type")
        if wire == _VARINT:
            found[number], at = _varint(header, at, position)
        elif wire == _BYTES:
            length, at = _varint(header, at, position)
            at += length
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise _Damaged(f"the header of the block at byte {position} cannot be decoded")
    if at != len(header):
        raise _Damaged(f"the header of the block at byte {position} ends within a field")
    return found


def _varint(data: bytes, at: int, position: int) -> tuple[int, int]:
    """A base-128 number at `at`, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value, at
    raise _Damaged(f"the header of the block at byte {position} holds a broken number")
