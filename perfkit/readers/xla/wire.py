"""Protobuf's wire format: the fields of a message as numbers and bytes, without a schema.

    for number, value in fields(data): ...   # value: int, float's eight bytes as `bytes`, or the bytes of a field

A message that is cut off or has an impossible length raises `Damaged`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST = 70  # bits of a number, in parts of seven


class Damaged(ValueError):
    """A message that is not in protobuf's wire format."""


def fields(data: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Give the number and value of each field of a message: numbers as `int`, all else as the bytes that hold it."""
    at, end, data = 0, len(data), memoryview(data)
    while at < end:
        key, at = _number(data, at, end)
        kind = key & 7
        if kind == _VARINT:
            value, at = _number(data, at, end)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _number(data, at, end)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise Damaged(f"a field of the unknown kind {kind}")
        if size > end - at:
            raise Damaged("a field that is longer than its message")
        yield key >> 3, data[at : at + size]
        at += size


def _number(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number of variable length at a byte, and the byte after it."""
    value = shift = 0
    while at < end and shift < _LONGEST:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Damaged("a number without an end")


def signed(value: int) -> int:
    """Return the int64 that a varint encodes."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def real(value: memoryview) -> float:
    """Return a double from its eight bytes."""
    if len(value) != 8:
        raise Damaged("a double without eight bytes")
    return float(struct.unpack("<d", value)[0])


def text(value: int | memoryview) -> str:
    """Return the text in a field. Raises `Damaged` for a number."""
    return bytes(message(value)).decode("utf-8", "replace")


def message(value: int | memoryview) -> memoryview:
    """Return the bytes of a message in a field. Raises `Damaged` for a number."""
    if isinstance(value, int):
        raise Damaged("a number where a message should be")
    return value


def number(value: int | memoryview) -> int:
    """Return the int64 in a field. Raises `Damaged` for a message."""
    if not isinstance(value, int):
        raise Damaged("a message where a number should be")
    return signed(value)


def numbers(value: int | memoryview) -> list[int]:
    """Return the int64s of a repeated field, packed or one of them."""
    if isinstance(value, int):
        return [signed(value)]
    found, at = list[int](), 0
    while at < len(value):
        one, at = _number(value, at, len(value))
        found.append(signed(one))
    return found
