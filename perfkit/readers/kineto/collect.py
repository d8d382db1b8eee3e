"""From decoded events to numpy columns, piece by piece, so that the decoded objects never live all at once.

What repeats is kept once: names, kinds of calls (`Key`), launch shapes, messages of collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfkit.readers.kineto.calls import key_of
from perfkit.readers.kineto.decoding import Args, Complete, Event, FlowEnd, FlowStart
from perfkit.readers.kineto.events import (
    COPY,
    DEVICE_KINDS,
    HOST_CATEGORIES,
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

_LATEST = 2.0**52  # ns after the first event, 52 days: up to here sums of times are exact
_MOST_IDS = 2**31 - 1


@dataclass
class Table:
    """Distinct values in the order of their first occurrence; `code` gives the place of one, adding it when new."""

    codes: dict[Any, int] = field(default_factory=dict)

    def code(self, value: Any) -> int:
        return self.codes.setdefault(value, len(self.codes))

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
        host = arrange(
            HostEvents(
                names=self._names.values,
                name=columns.taken("name", np.int32),
                category=columns.taken("category", np.int8),
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
        code, lane = self._names.codes.setdefault, self._lanes.codes.setdefault
        names, lanes = self._names.codes, self._lanes.codes
        name = [code(e.name, len(names)) for e in events]
        if len(names) > len(self._keeps):
            self._keeps += [self._wanted(n) for n in list(names)[len(self._keeps) :]]
        args = [e.args for e in events]
        category = np.array([HOST_CATEGORIES[e.cat] for e in events], np.int8)
        self._host.add(
            name=np.array(name, np.int32),
            category=category,
            lane=np.array([lane((e.pid, e.tid), len(lanes)) for e in events], np.int32),
            sequence=tight([a.sequence for a in args]),
            forward_thread=tight([a.forward_thread for a in args]),
            correlation=tight([a.correlation for a in args]),
            call=np.array(self._call_codes(events, name, args), np.int32),
            hierarchy=np.array([self._hierarchies.code(a.hierarchy) if a.hierarchy else -1 for a in args], np.int32),
            message=self._message_codes(args),
            start=np.array([e.ts for e in events], np.float64),
            length=np.array([e.dur for e in events], np.float64),
        )
        for i in np.flatnonzero(category == RUNTIME).tolist():
            if args[i].grid is not None or args[i].size is not None:  # AMD writes them at the launching call
                self._launches[args[i].correlation] = (_shape(args[i]), _whole(args[i].size))

    def _call_codes(self, events: list[Complete], name: list[int], args: list[Args]) -> list[int]:
        keeps, calls = self._keeps, self._calls.codes
        return [
            calls.setdefault(key_of(e.name, a), len(calls)) if keeps[n] else -1
            for e, n, a in zip(events, name, args, strict=True)
        ]

    def _add_device(self, events: list[Complete]) -> None:
        args = [e.args for e in events]
        self._device.add(
            name=np.array([self._device_names.code(e.name) for e in events], np.int32),
            kind=np.array([DEVICE_KINDS[e.cat] for e in events], np.int8),
            device=np.array([_small(a.device) for a in args], np.int32),
            stream=np.array([_small(a.stream) for a in args], np.int32),
            correlation=tight([a.correlation for a in args]),
            amount=np.array([-1 if a.bytes is None else _amount(a.bytes) for a in args], np.int64),
            shape=np.array([self._shape_code(a) for a in args], np.int32),
            message=self._message_codes(args),
            start=np.array([e.ts for e in events], np.float64),
            length=np.array([e.dur for e in events], np.float64),
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
        lane, lanes = self._lanes.codes.setdefault, self._lanes.codes
        self._flows.add(
            start=np.array([f.ts for f in flows], np.float64),
            lane=np.array([lane((f.pid, f.tid), len(lanes)) for f in flows], np.int64),
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
    return lambda name: names_work(name) or name.startswith("nccl:") or name.endswith("AccumulateGrad")


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


def _amount(value: float) -> int:
    """Bytes, −1 where they are beyond all reason."""
    return int(value) if 0 <= value <= 2**62 else -1


def _whole(value: int | str | None) -> int:
    text = str(value) if value is not None else ""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def _message(args: Args) -> Message:
    group = args.group_text or args.group or ""
    elements = [-1 if n is None or n < 0 else n for n in (args.elements_in, args.elements_out)]
    return Message(args.collective or "", elements[0], elements[1], args.dtype or "", group, args.group_size or -1)
