"""The outside of an Nsight Compute report: is the file whole, and how many results must come out of it?

A report is `NVR\\0`, the length of a header, the header, and blocks up to the end of the file: the length of a block
header, the block header, the payload. All lengths are little-endian 32 bit; headers are protocol buffers. In a block
header field 1 counts the sources of the block, field 2 the results of kernels, fields 7 to 9 those of ranges, command
lists and whole CUDA graphs; field 5 is the length of its payload: these one after another, each after its length.
Without a checksum, this finds a file that was cut off or overwritten.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from perfkit.errors import InputError

MAGIC = b"NVR\0"
SOURCES, RESULTS, PAYLOAD = 1, 2, 5  # fields of a block header
_OF_MANY_KERNELS = (7, 8, 9)  # ranges, command lists, graphs
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers
_MAX_HEADER = 1 << 28  # the string table of a report is in a header; those of full reports take about 0.1 MB
_LONGEST_VARINT = 10


@dataclass
class Container:
    """The bytes that each result takes, in file order."""

    sizes: list[int] = field(default_factory=list)

    @property
    def results(self) -> int:
        """Return how many results it holds."""
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
        raise damaged(path, str(error)) from error


def damaged(path: Path, why: str) -> InputError:
    """Return the refusal of a damaged report."""
    return InputError(
        f"{path} is a damaged Nsight Compute report: {why}.",
        "Copy it again from where it was captured, or capture it again.",
    )


def _walk(file: BinaryIO, size: int) -> Container:
    if size == 0:
        raise _Damaged("it is empty")
    if file.read(4) != MAGIC:
        raise _Damaged("it does not begin like one")
    _read_header(file, size, "the file's header")
    found = Container()
    while (position := file.tell()) < size:
        block = f"the block at byte {position}"
        fields = _numbers(_read_header(file, size, block), block)
        sources, payload = fields.get(SOURCES, 0), fields.get(PAYLOAD, 0)
        results = sum(fields.get(number, 0) for number in (RESULTS, *_OF_MANY_KERNELS))
        end = file.tell() + payload
        if end > size:
            raise _Damaged(f"it ends {end - size} bytes early, after {found.results} whole results")
        if results > payload:
            raise _Damaged(f"{block} states {results} results in {payload} bytes")
        for index in range(sources + results):
            start = file.tell() + 4
            length = int.from_bytes(file.read(4), "little")
            if start + length > end:
                raise _Damaged(f"{block} does not hold what it states")
            if index >= sources:
                found.sizes.append(length)
            file.seek(start + length)
        if file.tell() != end:
            raise _Damaged(f"{block} holds more than it states")
    if not found.results:
        raise _Damaged("it holds no results")
    return found


def _read_header(file: BinaryIO, size: int, what: str) -> bytes:
    """Read a length and that many bytes."""
    left = size - file.tell()
    if left < 4:
        raise _Damaged(f"it ends within the length of {what}")
    length = int.from_bytes(file.read(4), "little")
    if length > min(left - 4, _MAX_HEADER):
        raise _Damaged(f"it ends within {what}, which would be {length} bytes long")
    return file.read(length)


def _numbers(header: bytes, block: str) -> dict[int, int]:
    """Return the fields of a block header that are numbers. Raises `_Damaged` for what is not a protocol buffer."""
    found: dict[int, int] = {}
    at = 0
    while at < len(header):
        tag, at = _varint(header, at, block)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            found[number], at = _varint(header, at, block)
        elif wire == _BYTES:
            length, at = _varint(header, at, block)
            at += length
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise _Damaged(f"the header of {block} cannot be decoded")
    if at != len(header):
        raise _Damaged(f"the header of {block} ends within a field")
    return found


def _varint(data: bytes, at: int, block: str) -> tuple[int, int]:
    """Return the base-128 number at `at`, and where it ends."""
    value = shift = 0
    for byte in data[at : at + _LONGEST_VARINT]:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Damaged(f"the header of {block} holds a number that does not end")
