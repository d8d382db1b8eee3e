"""From decoded events to numpy columns, piece by piece, so that the decoded objects never live all at once.

What repeats is kept once: names, kinds of calls (`Key`), launch shapes, messages of collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from perfkit.readers.kineto.calls import key_of
from perfkit.readers.kineto.decoding import Args, Complete, Event, FlowEnd, FlowStart
from perfkit.readers.kineto.events import (
    ANNOTATION,
    COPY,
    DEVICE_KINDS,
    HOST_CATEGORIES,
    OPERATOR,
    RUNTIME,
    DeviceEvents,
    Flows,
    HostEvents,
    Integers,
    LaunchShape,
    Message,
    arrange,
)
from perfkit.readers.kineto.growing import Columns, tight
from perfkit.readers.kineto.sparse import TELLING

_LATEST = 2.0**52  # ns after the first event, 52 days: up to here sums of times are exact
_MOST_IDS = 2**31 - 1
# A million events have ten million attributes: `map` over these takes half the time of a comprehension.
_NAME, _CATEGORY, _LANE, _ARGS = attrgetter("name"), attrgetter("cat"), attrgetter("pid", "tid"), attrgetter("args")
_START, _LENGTH = attrgetter("ts"), attrgetter("dur")
_SEQUENCE, _FORWARD_THREAD = attrgetter("sequence"), attrgetter("forward_thread")
_CORRELATION, _HIERARCHY, _COLLECTIVE = attrgetter("correlation"), attrgetter("hierarchy"), attrgetter("collective")
_DEVICE, _STREAM, _BYTES = attrgetter("device"), attrgetter("stream"), attrgetter("bytes")


class _Codes(dict[Any, int]):
    """Gives a value that it does not hold yet the next code."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


@dataclass
class Table:
    """Distinct values in the order of their first occurrence; `code` gives the place of one, adding it when new."""

    codes: _Codes = field(default_factory=_Codes)

    def code(self, value: Any) -> int:
        return self.codes[value]

    def column(self, values: Iterable[Any], count: int) -> Integers:
        """The code of each of `count` values."""
        return np.fromiter(map(self.codes.__getitem__, values), np.int32, count)

    @property
    def values(self) -> list[Any]:
        return list(self.codes)


class Collector:
    """Takes events in pieces; `wanted` says by name which operators' arguments are worth keeping."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._names, self._lanes, self._calls = Table(), Table(), Table()
        self._device_names, self._shapes, self._messages, self._hierarchies = Table(), Table(), Table(), Table()
        self._keeps: list[bool] = []  # for each name whether its arguments are kept
        self._host, self._device, self._flows = Columns(), Columns(), Columns()
        self._launches: dict[int, tuple[LaunchShape | None, int]] = {}
        self._stated_shapes: dict[Any, int] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Take over what the table needs of `events`."""
        complete = [e for e in events if type(e) is Complete]
        host = [e for e in complete if e.cat in HOST_CATEGORIES]
        device = [e for e in complete if e.cat in DEVICE_KINDS] if len(host) < len(complete) else []
        flows = [e for e in events if (type(e) is FlowEnd or type(e) is FlowStart) and e.cat == "fwdbwd"]
        if host:
            self._add_host(host)
        if device:
            self._add_device(device)
        if flows:
            self._add_flows(flows)

    def finish(self) -> tuple[HostEvents, DeviceEvents]:
        """Everything collected, sorted and nested, with times from the earliest event on."""
        starts = [c.smallest("start") for c in (self._host, self._device)]
        origin = min((s for s in starts if s is not None), default=0.0)
        flows = self._taken_flows(origin)
        device = self._taken_device(_times(self._device, origin))
        columns = self._host
        start, end = _times(columns, origin)
        name, category = columns.taken("name", np.int32), columns.taken("category", np.int8)
        # perfkit's ranges are ranges, although PyTorch shows its cheap ones as operators (`ranges.line_marker`).
        ours = np.array([*(n.startswith("perfkit:") and n[8:9] != ":" for n in self._names.values), False])
        category[ours[name] & (category == OPERATOR)] = ANNOTATION
        host = arrange(
            HostEvents(
                names=self._names.values,
                name=name,
                category=category,
                lane=columns.taken("lane", np.int32),
                lanes=self._lanes.values,
                start=start,
                end=end,
                sequence=columns.taken("sequence"),
                forward_thread=columns.taken("forward_thread"),
                correlation=columns.taken("correlation"),
                call=columns.taken("call", np.int32),
                calls=self._calls.values,
                hierarchy=columns.taken("hierarchy", np.int32),
                hierarchies=self._hierarchies.values,
                message=columns.taken("message", np.int32),
                messages=self._messages.values,
                flows=flows,
                launches=self._launches,
            )
        )
        return host, device

    def _add_host(self, events: list[Complete]) -> None:
        count = len(events)
        name = self._names.column(map(_NAME, events), count)
        names = self._names.codes
        if len(names) > len(self._keeps):
            self._keeps += [self._wanted(n) for n in list(names)[len(self._keeps) :]]
        args = list(map(_ARGS, events))
        category = np.fromiter(map(HOST_CATEGORIES.__getitem__, map(_CATEGORY, events)), np.int8, count)
        self._host.add(
            name=name,
            category=category,
            lane=self._lanes.column(map(_LANE, events), count),
            sequence=tight(map(_SEQUENCE, args), count),
            forward_thread=tight(map(_FORWARD_THREAD, args), count),
            correlation=tight(map(_CORRELATION, args), count),
            call=self._call_codes(events, name, args),
            hierarchy=self._hierarchy_codes(args),
            message=self._message_codes(args),
            start=np.fromiter(map(_START, events), np.float64, count),
            length=np.fromiter(map(_LENGTH, events), np.float64, count),
        )
        for i in np.flatnonzero(category == RUNTIME).tolist():
            if args[i].grid is not None or args[i].size is not None:  # AMD writes them at the launching call
                self._launches[args[i].correlation] = (_shape(args[i]), _whole(args[i].size))

    def _call_codes(self, events: list[Complete], name: Integers, args: list[Args]) -> Integers:
        codes = np.full(len(events), -1, np.int32)
        kept = np.flatnonzero(np.array(self._keeps, bool)[name])
        if len(kept):
            keys = (key_of(events[i].name, args[i]) for i in kept.tolist())
            codes[kept] = self._calls.column(keys, len(kept))
        return codes

    def _hierarchy_codes(self, args: list[Args]) -> Integers:
        stated = list(map(_HIERARCHY, args))
        if not any(stated):
            return np.full(len(args), -1, np.int32)
        return np.array([self._hierarchies.code(text) if text else -1 for text in stated], np.int32)

    def _add_device(self, events: list[Complete]) -> None:
        args, count = list(map(_ARGS, events)), len(events)
        self._device.add(
            name=self._device_names.column(map(_NAME, events), count),
            kind=np.fromiter(map(DEVICE_KINDS.__getitem__, map(_CATEGORY, events)), np.int8, count),
            device=np.fromiter(map(_small, map(_DEVICE, args)), np.int32, count),
            stream=np.fromiter(map(_small, map(_STREAM, args)), np.int32, count),
            correlation=tight(map(_CORRELATION, args), count),
            amount=np.fromiter(map(_amount, map(_BYTES, args)), np.int64, count),
            shape=np.fromiter(map(self._shape_code, args), np.int32, count),
            message=self._message_codes(args),
            start=np.fromiter(map(_START, events), np.float64, count),
            length=np.fromiter(map(_LENGTH, events), np.float64, count),
        )

    def _shape_code(self, args: Args) -> int:
        grid, block = args.grid, args.block
        stated = (
            tuple(grid) if isinstance(grid, list) else grid,
            tuple(block) if isinstance(block, list) else block,
            args.registers,
            args.shared_memory,
            args.occupancy,
        )
        code = self._stated_shapes.get(stated)
        if code is None:
            code = self._stated_shapes[stated] = self._shapes.code(_shape(args))
        return code

    def _message_codes(self, args: list[Args]) -> Integers:
        if not any(map(_COLLECTIVE, args)):
            return np.full(len(args), -1, np.int32)
        code = self._messages.code
        return np.array([-1 if a.collective is None else code(_message(a)) for a in args], np.int32)

    def _taken_device(self, times: tuple[Integers, Integers]) -> DeviceEvents:
        columns, (start, end) = self._device, times
        order = np.argsort(start, kind="stable")
        device = DeviceEvents(
            names=self._device_names.values,
            name=columns.taken("name", np.int32)[order],
            kind=columns.taken("kind", np.int8)[order],
            start=start[order],
            end=end[order],
            device=columns.taken("device", np.int32)[order],
            stream=columns.taken("stream", np.int32)[order],
            correlation=columns.taken("correlation")[order],
            amount=columns.taken("amount")[order],
            shape=columns.taken("shape", np.int32)[order],
            shapes=self._shapes.values,
            message=columns.taken("message", np.int32)[order],
            messages=self._messages.values,
        )
        for i in np.flatnonzero((device.kind == COPY) & (device.amount < 0)).tolist() if self._launches else ():
            device.amount[i] = self._launches.get(int(device.correlation[i]), (None, -1))[1]
        return device

    def _add_flows(self, flows: list[Any]) -> None:
        self._flows.add(
            start=np.array([f.ts for f in flows], np.float64),
            lane=self._lanes.column(map(_LANE, flows), len(flows)),
            id=np.array([f.id if isinstance(f.id, int) else -1 for f in flows], np.int64),
            begins=np.array([type(f) is FlowStart for f in flows], bool),
        )

    def _taken_flows(self, origin: float) -> Flows:
        """The pairs of arrows from forward to backward."""
        columns = self._flows
        start = columns.taken("start", change=lambda s: _nanoseconds(s - origin))
        lane, number, begins = (columns.taken(n) for n in ("lane", "id", "begins"))
        begin, end = np.flatnonzero(begins > 0), np.flatnonzero(begins == 0)
        _, of_begin, of_end = np.intersect1d(number[begin], number[end], return_indices=True)
        begin, end = begin[of_begin], end[of_end]
        return Flows(start[begin], lane[begin], start[end], lane[end])


def _times(columns: Columns, origin: float) -> tuple[Integers, Integers]:
    """Start and end in ns after `origin` (µs)."""
    start = columns.taken("start", change=lambda s: _nanoseconds(s - origin))
    end = columns.taken("length", change=lambda s: np.maximum(_nanoseconds(s), 0))
    end += start
    return start, end


def _nanoseconds(microseconds: Integers) -> Integers:
    """Whole ns; what lies beyond `_LATEST` is damage and is brought there."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.clip(np.rint(microseconds * 1e3), -_LATEST, _LATEST).astype(np.int64)


def wanted_operator(names_work: Callable[[str], bool]) -> Callable[[str], bool]:
    """By name, whether the arguments of an operator or range are needed: those of work, and of what stands for it."""
    return lambda name: (
        names_work(name) or name in TELLING or name.startswith("nccl:") or name.endswith("AccumulateGrad")
    )


def _shape(args: Args) -> LaunchShape:
    return LaunchShape(
        _three(args.grid), _three(args.block), _real(args.registers), _real(args.shared_memory), _real(args.occupancy)
    )


def _three(value: list[int] | str | None) -> tuple[int, int, int]:
    """Three sizes, −1 where unknown; some Triton traces hold them as text such as "(64, 1, 1)" or a single number."""
    if isinstance(value, str):
        value = [int(part) for part in value[:100].strip("()[] ").split(",") if part.strip().isdecimal()]
    padded = [n if 0 <= n <= _MOST_IDS else -1 for n in (value or [])[:3]]
    return tuple([*padded, -1, -1, -1][:3])  # type: ignore[return-value]


def _real(value: float | None) -> float:
    """A number that is finite and not negative, else −1 for absent."""
    return float(value) if value is not None and 0 <= value < 1e18 else -1.0


def _small(value: int | str | None) -> int:
    return value if isinstance(value, int) and 0 <= value <= _MOST_IDS else -1


def _amount(value: float | None) -> int:
    """Bytes, −1 where they are unknown or beyond all reason."""
    return int(value) if value is not None and 0 <= value <= 2**62 else -1


def _whole(value: int | str | None) -> int:
    text = str(value) if value is not None else ""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def _message(args: Args) -> Message:
    group = args.group_text or args.group or ""
    elements = [-1 if n is None or n < 0 else n for n in (args.elements_in, args.elements_out)]
    return Message(args.collective or "", elements[0], elements[1], args.dtype or "", group, args.group_size or -1)
