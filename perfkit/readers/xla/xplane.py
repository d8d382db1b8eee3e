"""`*.xplane.pb`, the profile that JAX, TensorFlow and PyTorch/XLA write: protobuf, by the numbers of its fields.

XSpace: planes 1, errors 2, warnings 3. XPlane: name 2, lines 3, event metadata 4, stat metadata 5, stats 6.
XLine: name 2, start in ns 3, events 4, shown name 11. XEvent: metadata 1, offset in ps 2, duration in ps 3, stats 4.
XEventMetadata: id 1, name 2, shown name 4, stats 5. XStat: metadata 1, then a value: double 2, unsigned 3, signed 4,
text 5, bytes 6, text that a stat's metadata holds 7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from perfkit.readers.xla.profile import Event, Stats, XlaLine, XlaProfile
from perfkit.readers.xla.wire import Damaged, fields, message, number, real, text

_HLO = ("Hlo Proto", "hlo_proto")
_PYTHON = "$"  # calls of Python, which the tracer adds by the thousand
_MODULES = "/host:metadata"


class _Named(NamedTuple):
    """Name and stats that all events of one kind share."""

    name: str
    stats: Stats


def read_xplane(data: bytes) -> XlaProfile:
    """Read an XSpace. Raises `Damaged` for other bytes."""
    found = XlaProfile()
    for field, value in fields(data):
        if field == 1:
            _add_plane(found, message(value))
        elif field in (2, 3):
            found.notes.append(text(value)[:200])
    return found


def _add_plane(profile: XlaProfile, data: memoryview) -> None:
    name, lines, stats = "", list[memoryview](), list[memoryview]()
    kinds: dict[int, memoryview] = {}
    words: dict[int, str] = {}
    for field, value in fields(data):
        if field == 2:
            name = text(value)
        elif field == 3:
            lines.append(message(value))
        elif field == 4:
            key, kind = _entry(message(value))
            kinds[key] = kind
        elif field == 5:
            key, word = _entry(message(value))
            words[key] = next((text(v) for f, v in fields(word) if f == 2), "")
        elif field == 6:
            stats.append(message(value))
    named = {key: _named(kind, words) for key, kind in kinds.items()}
    if name == _MODULES:
        for key, event in named.items():
            proto = next((event.stats[word] for word in _HLO if word in event.stats), None)
            if isinstance(proto, bytes):  # older versions number the kinds of events as the programs
                profile.modules[event.stats.get("program_id", key)] = proto
        return
    profile.planes[name] = dict(_stat(stat, words) for stat in stats)
    profile.lines += [_line(name, line, named, words) for line in lines]


def _entry(data: memoryview) -> tuple[int, memoryview]:
    """Key and value of an entry of a map."""
    key, value = 0, memoryview(b"")
    for field, found in fields(data):
        if field == 1:
            key = number(found)
        elif field == 2:
            value = message(found)
    return key, value


def _named(data: memoryview, words: dict[int, str]) -> _Named:
    name, stats = "", Stats()
    for field, value in fields(data):
        if field == 2:
            name = text(value)
        elif field == 5:
            stats.update([_stat(message(value), words)])
    return _Named(name, stats)


def _stat(data: memoryview, words: dict[int, str]) -> tuple[str, Any]:
    """Name and value of a stat."""
    key = 0
    value: Any = None
    for field, found in fields(data):
        if field == 1:
            key = number(found)
        elif field == 2:
            value = real(message(found))
        elif field in (3, 4):
            value = number(found)
        elif field == 5:
            value = text(found)
        elif field == 6:
            value = bytes(message(found))
        elif field == 7:
            value = words.get(number(found), "")
    return words.get(key, ""), value


def _line(plane: str, data: memoryview, named: dict[int, _Named], words: dict[int, str]) -> XlaLine:
    name, began, events = "", 0, list[memoryview]()
    for field, value in fields(data):
        if field == 2:
            name = text(value)
        elif field == 3:
            began = number(value)
        elif field == 4:
            events.append(message(value))
    made = (_event(event, began, named, words) for event in events)
    return XlaLine(plane, name, [one for one in made if one is not None])


def _event(data: memoryview, began: int, named: dict[int, _Named], words: dict[int, str]) -> Event | None:
    """An event; None for calls of Python, and for those that only count."""
    kind, offset, length, stats = -1, 0, 0, list[memoryview]()
    for field, value in fields(data):
        if field == 1:
            kind = number(value)
        elif field == 2:
            offset = number(value)
        elif field == 3:
            length = number(value)
        elif field == 4:
            stats.append(message(value))
        elif field == 5:
            return None
    if kind not in named:
        raise Damaged("an event of an unknown kind")
    name, common = named[kind]
    if name.startswith(_PYTHON):
        return None
    start = began + offset // 1000
    return Event(name, start, start + round(length / 1000), {**common, **dict(_stat(stat, words) for stat in stats)})
