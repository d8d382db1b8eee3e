"""The outside of an Nsight Compute report: is the file whole, and how many results must come out of it?

A report is `NVR\\0`, the length of a header, the header, and blocks up to the end of the file: the length of a block
header, the block header, the payload. All lengths are little-endian 32 bit; headers are protocol buffers. In a block
header each field is there once; field 1 counts the sources of the block, field 2 the results of kernels, fields 7 to 9
those of ranges, command lists and whole CUDA graphs; field 5 is the length of its payload: these one after another,
each behind its length. There is no checksum: this finds what was cut off or overwritten coarsely, and tells what the
reader behind it must give back (`structure` looks into the results).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from perfkit.errors import InputError
from perfkit.readers.ncu.structure import KERNEL, OF_MANY, Broken, Form, Shape, compare, shape_of, varint

MAGIC = b"NVR\0"
SOURCES, RESULTS, NAMES, PAYLOAD = 1, 2, 4, 5  # fields of a block header
_OF_MANY_KERNELS = (7, 8, 9)  # ranges, command lists, graphs
_COUNTS = (SOURCES, RESULTS, PAYLOAD, *_OF_MANY_KERNELS)
_NAME_TAG = 0x0A
# A name, or an expression that names were asked for by: the tool keeps that in its table too.
_NAME = re.compile(rb"[\w.:() -]{1,300}|(regex|group|breakdown|pmsampling):[ -~]{1,20000}")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers
_MAX_HEADER = 1 << 28  # the string table of a report lies in a header; those of full reports take about 0.1 MB


@dataclass
class Container:
    """What the container states: for each result, in file order, where it begins, how many bytes it takes, its form.

    `names` are those of the metrics, in the order of their numbers.
    """

    sizes: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)

    @property
    def results(self) -> int:
        """How many results it holds."""
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
        sources, kernels, payload, *others = (int(fields.get(n, 0)) for n in _COUNTS)
        results = kernels + sum(others)
        found.names += _names(bytes(fields.get(NAMES, b"")))
        end = file.tell() + payload
        if end > size:
            raise _Damaged(f"it ends {end - size} bytes early, after {found.results} whole results")
        if results > payload:
            raise _Damaged(f"the block at byte {position} states {results} results in {payload} bytes")
        for index in range(sources + results):
            start = file.tell() + 4
            length = int.from_bytes(file.read(4), "little")
            if start + length > end:
                raise _Damaged(f"the block at byte {position} does not hold what it states")
            if index >= sources:
                found.sizes.append(length)
                found.starts.append(start)
                found.forms.append(KERNEL if index < sources + kernels else OF_MANY)
            file.seek(start + length)
        if file.tell() != end:
            raise _Damaged(f"the block at byte {position} holds more than it states")
    if not found.results:
        raise _Damaged("it holds no results")
    if len(set(found.names)) != len(found.names):
        raise _Damaged("its table of names holds one twice")
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


def _fields(header: bytes, position: int) -> dict[int, int | bytes]:
    """The fields of a block header. Raises `_Damaged` for no protocol buffer, or a field of a wrong type or place."""
    found: dict[int, int | bytes] = {}
    at = last = 0
    try:
        while at < len(header):
            tag, at = varint(header, at)
            number, wire = tag >> 3, tag & 7
            if number in _COUNTS and wire != _VARINT:
                raise Broken("has a field of a wrong type")
            if number <= last:
                raise Broken("has its fields out of order")
            last = number
            if wire == _VARINT:
                found[number], at = varint(header, at)
            elif wire == _BYTES:
                length, at = varint(header, at)
                found[number], at = header[at : at + length], at + length
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            else:
                raise Broken("cannot be decoded")
        if at != len(header):
            raise Broken("ends within a field")
    except Broken as error:
        raise _Damaged(f"the header of the block at byte {position} {str(error).removeprefix('it ')}") from error
    return found


def _names(table: bytes) -> list[bytes]:
    """The names of metrics in a block header: field 1, many times. Raises `_Damaged` for what can be no names."""
    found, at = [], 0
    try:
        while at < len(table):
            length, begin = varint(table, at + 1)
            name = table[begin : begin + length]
            if table[at] != _NAME_TAG or not _NAME.fullmatch(name):
                raise Broken
            found.append(name)
            at = begin + length
    except (Broken, IndexError) as error:
        raise _Damaged("its table of names is broken") from error
    if at != len(table):
        raise _Damaged("its table of names is broken")
    return found


def check_results(path: Path, container: Container) -> list[Shape]:
    """Look into every result. Raises `InputError` for one whose parts do not fit into each other."""
    shapes = []
    try:
        with path.open("rb") as file:
            results = zip(container.starts, container.sizes, container.forms, strict=True)
            for index, (start, size, form) in enumerate(results, 1):
                file.seek(start)
                try:
                    shapes.append(shape_of(file.read(size), form))
                except (Broken, IndexError) as error:
                    raise _Damaged(f"result {index} of {container.results}: {error}") from error
        if reason := compare(shapes, len(container.names)):
            raise _Damaged(reason)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except _Damaged as error:
        raise InputError(f"{path} is a damaged Nsight Compute report: {error}.", _AGAIN) from error
    return shapes
