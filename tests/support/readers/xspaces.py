"""Profiles of XLA made of plain Python: planes of lines of events, in protobuf."""

from __future__ import annotations

from typing import Any

from tests.support.readers.ncu_reports import varint


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a message: a number, or the bytes of a message or text."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & ((1 << 64) - 1))
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def space(*planes: bytes) -> bytes:
    return b"".join(field(1, plane) for plane in planes)


def plane(name: str, lines: dict[str, list[tuple[str, int, int, dict[str, Any]]]], **stats: Any) -> bytes:
    """A plane; an event is its name, start and end in ns, and what is known of it."""
    words: dict[str, int] = {}
    kinds: dict[str, int] = {}

    def stat(key: str, value: Any) -> bytes:
        number = words.setdefault(key, len(words) + 1)
        return field(1, number) + field(5 if isinstance(value, str) else 6 if isinstance(value, bytes) else 4, value)

    made = b""
    for line, events in lines.items():
        inside = field(2, line) + field(3, 1_000_000)
        for event, start, end, said in events:
            kind = kinds.setdefault(event, len(kinds) + 1)
            content = field(1, kind) + field(2, start * 1000) + field(3, (end - start) * 1000)
            inside += field(4, content + b"".join(field(4, stat(*pair)) for pair in said.items()))
        made += field(3, inside)
    of_plane = b"".join(field(6, stat(*pair)) for pair in stats.items())
    named = b"".join(field(4, field(1, n) + field(2, field(1, n) + field(2, kind))) for kind, n in kinds.items())
    spelled = b"".join(field(5, field(1, n) + field(2, field(1, n) + field(2, word))) for word, n in words.items())
    return field(2, name) + made + named + spelled + of_plane


def programs(modules: dict[int, bytes]) -> bytes:
    """The plane of HLO modules, by the numbers of their programs."""
    proto = field(5, field(1, 1) + field(2, field(1, 1) + field(2, "Hlo Proto")))
    entries = b"".join(
        field(4, field(1, n) + field(2, field(1, n) + field(2, f"jit_f({n})") + field(5, field(1, 1) + field(6, data))))
        for n, data in modules.items()
    )
    return field(2, "/host:metadata") + entries + proto


TYPES = {"fp32": 11, "bf16": 16, "fp16": 10, "int32": 4, "uint8": 6}


def shape(dtype: str, *sizes: int) -> bytes:
    return field(2, TYPES[dtype]) + field(3, b"".join(map(varint, sizes)))


def instruction(number: int, name: str, opcode: str, result: bytes, *more: bytes, scopes: str = "") -> bytes:
    """An instruction; `more` are further fields, such as `operands(…)`."""
    said = field(7, field(2, scopes)) if scopes else b""
    return field(1, name) + field(2, opcode) + field(3, result) + said + field(35, number) + b"".join(more)


def operands(*numbers: int) -> bytes:
    return field(36, b"".join(map(varint, numbers)))


def calls(computation: int) -> bytes:
    return field(38, computation)


def contracts(left: int, right: int) -> bytes:
    """Dimensions that a dot sums over."""
    return field(30, field(1, bytes([left])) + field(2, bytes([right])))


def module(*computations: tuple[int, list[bytes]], order: list[int] | None = None) -> bytes:
    """An HloProto of computations: number and instructions of each. The first runs in `order`, of their numbers."""
    made = b"".join(field(3, b"".join(field(2, one) for one in inside) + field(5, n)) for n, inside in computations)
    sequence = field(1, b"".join(map(varint, order or ())))
    schedule = field(7, field(1, field(1, computations[0][0]) + field(2, sequence))) if order else b""
    return field(1, field(1, "jit_f") + made + schedule)
