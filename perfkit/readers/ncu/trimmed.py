"""A copy of a report for NVIDIA's reader, in which it skips what takes it longest and nobody here asks for.

Three quarters of a full report are the tables of its sections (field 5 of field 17 of a kernel's result) and the
instances of its metrics (field 3 of field 13: one number a multiprocessor, or an instruction). In the copy these have
a number that the reader does not know: a decoder of protocol buffers keeps such a field unread. No byte moves, so all
lengths and places stay; values of metrics, names of sections and advice lie elsewhere. The copy is in memory, and holds
the results of one slice: the others are holes in it, which the reader never looks at.

Like `worker`, which imports it, this imports nothing of perfkit.
"""

from __future__ import annotations

import contextlib
import os

METRIC, SECTION = 13, 17  # fields of a kernel's result
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers
_METRIC_TAG = METRIC << 3 | _BYTES
_TABLES_TAG, _INSTANCE_TAG = 5 << 3 | _BYTES, 3 << 3 | _BYTES
_UNKNOWN_TAG = 15 << 3 | _BYTES  # no section and no metric of a real report has a field 15
_BARE = 24  # bytes of a metric: one with instances has more
_LARGEST_REST = 64 << 20  # bytes outside results (sources) that are worth copying


def copy(path: str, results: list[tuple[int, int, bool]], first: int, last: int) -> int | None:
    """A file descriptor of the copy with results first … last − 1 of `results`: start, bytes, whether of a kernel.

    None where there can be none: no files in memory on this system, or a report that is mostly something else.
    """
    size = os.stat(path).st_size
    if not hasattr(os, "memfd_create") or size - sum(length for _, length, _ in results) > _LARGEST_REST:
        return None
    made = os.memfd_create(os.path.basename(path))
    os.ftruncate(made, size)
    at = 0
    with open(path, "rb") as file:
        for index, (start, length, kernel) in enumerate(results):
            file.seek(at)
            os.pwrite(made, file.read(start - at), at)
            if first <= index < last:
                result = bytearray(file.read(length))
                if kernel:
                    with contextlib.suppress(ValueError, IndexError):  # damaged: perfkit's own check says so
                        hide(result)
                os.pwrite(made, result, start)
            at = start + length
        file.seek(at)
        os.pwrite(made, file.read(), at)
    return made


def hide(result: bytearray) -> None:
    """Renumber tables and instances in a kernel's result, in place. Raises ValueError or IndexError."""
    at, end = 0, len(result)
    while at < end:
        if result[at] == _METRIC_TAG:  # most fields
            length, at = result[at + 1], at + 2
            if length > 0x7F:
                length, at = _varint(result, at - 1)
            after = at + length
            if after > end:
                raise ValueError("a metric is longer than its result")
            if length > _BARE:
                _hide_instances(result, at, after)
            at = after
            continue
        number, at, after = _field(result, at)
        if number == SECTION:
            while at < after:
                tag = at
                _, _, at = _field(result, at)
                if result[tag] == _TABLES_TAG:
                    result[tag] = _UNKNOWN_TAG
        at = after


def _hide_instances(data: bytearray, at: int, end: int) -> None:
    """Make one unknown field of all instances of the metric in data[at:end]; they stand side by side."""
    while at < end and data[at] != _INSTANCE_TAG:
        at = _field(data, at)[2]
    first = at
    while at < end and data[at] == _INSTANCE_TAG:
        length = data[at + 1]
        if length > 0x7F:
            at = _field(data, at)[2]
            continue
        # As many of this length as follow each other: most have the same.
        tags, lengths = data[at : end : length + 2], data[at + 1 : end : length + 2]
        same = min(len(part) - len(part.lstrip(part[:1])) for part in (tags, lengths))
        at += same * (length + 2)
    if at > end:
        raise ValueError("an instance is longer than its metric")
    if at > first:
        _make_one(data, first, at)


def _make_one(data: bytearray, at: int, end: int) -> None:
    """Overwrite the beginning of data[at:end] so that all of it is one unknown field."""
    width = 1
    while (length := end - at - 1 - width) >> 7 * width:
        width += 1
    more = [length >> 7 * i & 0x7F | 0x80 for i in range(width - 1)]
    data[at : at + 1 + width] = bytes([_UNKNOWN_TAG, *more, length >> 7 * (width - 1)])


def _field(data: bytearray, at: int) -> tuple[int, int, int]:
    """The number of the field at `at`, where its content begins, and where it ends."""
    tag, at = _varint(data, at)
    wire = tag & 7
    if wire == _BYTES:
        length, at = _varint(data, at)
        return tag >> 3, at, at + length
    if wire == _VARINT:
        return tag >> 3, at, _varint(data, at)[1]
    if wire in (_FIXED64, _FIXED32):
        return tag >> 3, at, at + (8 if wire == _FIXED64 else 4)
    raise ValueError("it holds a field of no known type")


def _varint(data: bytearray, at: int) -> tuple[int, int]:
    """A base-128 number at `at`, and where it ends."""
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
