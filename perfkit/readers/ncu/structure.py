"""The inside of an Nsight Compute report, as far as it tells what must come out of NVIDIA's reader.

That reader leaves out silently what it does not understand. A result is a protocol buffer whose fields stand in the
order of their numbers; field 13 is a metric: its number in the table of names (field 1), then its value (field 2),
which holds one field: a real number (3), an integer (5) or a text (1). A metric has the same kind of value in every
result of a report. Field 17 is a section. 14 real reports, of 2022 to 2025, are all built like that. The result of a
range or of a whole CUDA graph is another message, with the metrics in field 4 and the sections in field 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_NUMBER = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers
_LONGEST_VARINT = 10
_NUMBER_TAG, _VALUE_TAG = 1 << 3 | _VARINT, 2 << 3 | _BYTES
_REAL, _INTEGER, _TEXT = 0x19, 0x28, 0x0A  # tag bytes of the three kinds of value


@dataclass(frozen=True)
class Form:
    """The fields of one kind of result."""

    metric: int
    section: int


KERNEL, OF_MANY = Form(metric=13, section=17), Form(metric=4, section=7)


class Broken(Exception):
    """Why the bytes are no whole result."""


@dataclass
class Shape:
    """What one result holds: for each metric the kind of its value (0 for none) by its number, and its sections.

    `identity`: its process and its number in it, which no other result has.
    """

    metrics: dict[int, int] = field(default_factory=dict)
    sections: int = 0
    identity: tuple[int, int] = (0, 0)


def shape_of(data: bytes, form: Form = KERNEL) -> Shape:
    """Walk over the fields of a result. Raises `Broken` where they do not fit into each other, or IndexError."""
    found = Shape()
    at, end, last = 0, len(data), 0
    metric, metric_tag = form.metric, form.metric << 3 | _BYTES
    while at < end:
        if data[at] == metric_tag and last <= metric:  # most fields: no calls of functions here
            length, at = data[at + 1], at + 2
            if length > 0x7F:
                length, at = varint(data, at - 1)
            _metric(data, at, at + length, found.metrics)
            at, last = at + length, metric
            continue
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not last <= number or not number:
            raise Broken("its fields are out of order")
        last = number
        if number == metric:
            raise Broken("a metric has no content")
        if wire == _BYTES:
            length, at = varint(data, at)
            found.sections += number == form.section
            at += length
        elif wire == _VARINT:
            value, at = varint(data, at)
            if number <= _NUMBER:
                found.identity = (value, 0) if number < _NUMBER else (found.identity[0], value)
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise Broken("it holds a field of no known type")
    if at != end:
        raise Broken("it ends within a field")
    return found


def _metric(data: bytes, at: int, end: int, kinds: dict[int, int]) -> None:
    """Put number and kind of value of the metric in data[at:end] into `kinds`."""
    if end > len(data):
        raise Broken("a metric is longer than its result")
    if at == end or data[at] != _NUMBER_TAG:
        raise Broken("a metric has no number")
    identity, at = data[at + 1], at + 2
    if identity > 0x7F:
        identity, at = varint(data, at - 1)
    kind = 0
    if at < end and data[at] == _VALUE_TAG:
        length, at = data[at + 1], at + 2
        if length > 0x7F:
            length, at = varint(data, at - 1)
        if not length or at + length > end:
            raise Broken("the value of a metric does not fit into it")
        kind = data[at]
        if kind == _REAL:
            size = 9
        elif kind in (_INTEGER, _TEXT):
            size, inner = varint(data, at + 1)
            size = inner - at + (size if kind == _TEXT else 0)
        else:
            size = 0
        if size != length:
            raise Broken("the value of a metric is of no known kind")
    if kinds.setdefault(identity, kind) != kind:
        raise Broken("a metric has values of two kinds")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A base-128 number at `at`, and where it ends. Raises `Broken` for one that does not end."""
    value = shift = 0
    for byte in data[at : at + _LONGEST_VARINT]:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise Broken("it holds a number that does not end")


def compare(shapes: list[Shape], names: int) -> str:
    """What speaks against these being the results of one report with so many names; "" if nothing does."""
    if names and any(identity >= names for shape in shapes for identity in shape.metrics):
        return "a metric has no name"
    kinds: dict[int, int] = {}
    for shape in shapes:
        for identity, kind in shape.metrics.items():
            if kind and kinds.setdefault(identity, kind) != kind:
                return "a metric is a real number in one result and something else in another"
    return ""
