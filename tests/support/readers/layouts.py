"""The same trace in any layout that JSON allows, drawn at random."""

from __future__ import annotations

import codecs
import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Text that looks like the border of two events, like the list of events, or like the end of a string.
TRAPS = (
    '}, {"ph": "X", "name": "',
    "},{",
    "}]}",
    '"traceEvents": [',
    'C:\\dir\\"},\n{"',
    "\\",
    '\\"',
    "[{",
    "größer}, {",
)
NESTED: tuple[Any, ...] = (
    [{"a": [1, {"b": "]}"}]}, {"c": "\\"}], {"x": {}, "traceEvents": [{"ph": "X"}, {"ph": "X"}]}, [[], [[{}]]], -1.5e-7,
)  # fmt: skip
ESCAPED = (
    ('"ph"', r'"\u0070h"'),
    ('"cpu_op"', r'"cpu\u005fop"'),
    ("/", r"\/"),
    ('"traceEvents"', r'"trace\u0045vents"'),
)


@dataclass(frozen=True)
class Layout:
    """How a trace is written. `order` is that of keys: as they are, sorted, or mixed."""

    comma: str
    colon: str
    between: str
    indent: int | None
    order: str
    ends: str
    ascii: bool
    escaped: bool
    mark: bool
    before: int
    behind: int
    packed: str
    piece: int
    seed: int

    def write(self, trace: dict[str, Any]) -> bytes:
        """`trace` in this layout, with other top-level keys before and after its events."""
        rng = random.Random(self.seed)
        around = list(_others(trace, self.before + self.behind, rng))
        # deviceProperties and the like may be on either side too.
        first = rng.randrange(self.before, len(around) - self.behind + 1)
        parts = [self._member(key, value, rng) for key, value in around]
        events = self.between.join(self._text(event, rng) for event in trace["traceEvents"])
        parts.insert(first, f'"traceEvents"{self.colon}[{_blank(rng)}{events}{_blank(rng)}]')
        text = _blank(rng) + "{" + self.comma.join(parts) + "}" + _blank(rng)
        return self._encoded(text)

    def write_list(self, trace: dict[str, Any]) -> bytes:
        """The events of `trace` alone, as a bare list."""
        rng = random.Random(self.seed)
        return self._encoded("[" + self.between.join(self._text(event, rng) for event in trace["traceEvents"]) + "]")

    def _text(self, value: Any, rng: random.Random) -> str:
        if self.order == "mixed":
            value = _mixed(value, rng)
        separators = (self.comma, self.colon) if self.indent is None else None
        return json.dumps(
            value, separators=separators, indent=self.indent, sort_keys=self.order == "sorted", ensure_ascii=self.ascii
        )

    def _member(self, key: str, value: Any, rng: random.Random) -> str:
        return f"{json.dumps(key)}{self.colon}{self._text(value, rng)}"

    def _encoded(self, text: str) -> bytes:
        for plain, other in ESCAPED if self.escaped else ():
            text = text.replace(plain, other)
        data = text.replace("\n", self.ends).encode()
        data = codecs.BOM_UTF8 + data if self.mark else data
        if self.packed == "members":
            return b"".join(gzip.compress(data[i : i + 999_983], 1) for i in range(0, len(data), 999_983))
        return gzip.compress(data, 1) if self.packed == "gzip" else data


def layout(rng: random.Random) -> Layout:
    """Any layout."""
    return Layout(
        comma=rng.choice((",", ", ", f"{_blank(rng)},{_blank(rng)}")),
        colon=rng.choice((":", ": ", f"{_blank(rng)}:{_blank(rng)}")),
        between=rng.choice((",", ", ", ",\n", ",\n  ", f"{_blank(rng)},{_blank(rng)}")),
        indent=rng.choice((None, None, None, 1, 2)),
        order=rng.choice(("as it is", "sorted", "mixed")),
        ends=rng.choice(("\n", "\r\n")),
        ascii=rng.random() < 0.5,
        escaped=rng.random() < 0.2,
        mark=rng.random() < 0.2,
        before=rng.randrange(4),
        behind=rng.randrange(4),
        packed=rng.choice(("plain", "gzip", "members")),
        piece=rng.choice((1 << 12, 1 << 14, 1 << 16, 1 << 19, 1 << 19)),
        seed=rng.randrange(1 << 30),
    )


def trapped(trace: dict[str, Any], rng: random.Random, share: float = 0.02) -> dict[str, Any]:
    """`trace` with traps in the names and arguments of that share of its events."""
    events = []
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and rng.random() < share:
            name = f"{event.get('name')} {rng.choice(TRAPS)}" if rng.random() < 0.3 else event.get("name")
            args = {**event.get("args", {}), "note": rng.choice(TRAPS), "nested": rng.choice(NESTED)}
            event = {**event, "name": name, "args": args}
        events.append(event)
    return {**trace, "traceEvents": events}


def _others(trace: dict[str, Any], count: int, rng: random.Random) -> Iterator[tuple[str, Any]]:
    """The other top-level keys of `trace`, and `count` made ones, in any order."""
    found = [(key, value) for key, value in trace.items() if key != "traceEvents"]
    made = [(f"{rng.choice(TRAPS)} {i}", rng.choice((*TRAPS, *NESTED))) for i in range(count)]
    yield from rng.sample(found + made, len(found + made))


def _mixed(value: Any, rng: random.Random) -> Any:
    """`value` with the keys of its objects in any order."""
    if not isinstance(value, dict):
        return value
    return {key: _mixed(value[key], rng) for key in rng.sample(list(value), len(value))}


def _blank(rng: random.Random) -> str:
    return "".join(rng.choices(" \t\n", k=rng.choice((0, 0, 1, 2, 9))))
