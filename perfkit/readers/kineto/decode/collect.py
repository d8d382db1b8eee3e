"""From decoded events to numpy columns, piece by piece, so that the decoded objects never live all at once.

What repeats is kept once: names, kinds of calls (`Key`), launch shapes, messages of collectives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.profile_names import LOADER, NCCL, OPTIMIZER_STEP, OPTIMIZER_ZERO_GRAD, PREFIX, PROFILER_STEP, from_trace
from perfkit.readers.kineto.decode.arrange import arrange
from perfkit.readers.kineto.decode.builder import (
    SEPARATOR,
    Columns,
    DistinctValues,
    Memo,
    Memory,
    Some,
    decoded,
    key_of,
    moved_by,
    real_of,
    reals,
    recorded,
    small_of,
    three_of,
    tight,
    whole_of,
)
from perfkit.readers.kineto.decode.categories import (
    ARROW,
    BY_NAME,
    MOMENT,
    NEITHER,
    ON_DEVICE,
    UNREAD,
    Category,
    on_mtia,
)
from perfkit.readers.kineto.decode.events import (
    ANNOTATION,
    COPY,
    FILL,
    MARK,
    OPERATOR,
    RUNTIME,
    DeviceEvents,
    Flows,
    GpuAnnotations,
    HostEvents,
    LaunchShape,
    Message,
)
from perfkit.readers.kineto.decode.typed import MEMORY, NOTHING, Args, Complete, Event, FlowStart
from perfkit.readers.kineto.decode.typed import Counter as CounterEvent

_LATEST = 2.0**52  # ns after the first event, 52 days: up to here sums of times are exact
_CODES = {"name": np.int32, "kind": np.int8, "device": np.int32, "stream": np.int32}
_RANGES = (PREFIX, PROFILER_STEP, OPTIMIZER_STEP, OPTIMIZER_ZERO_GRAD, f"{LOADER}#", NCCL)
_SHAPE = attrgetter("grid", "block", "registers", "shared_memory", "occupancy")


class Collector:
    """Takes events in pieces; `wanted` says by name which operators' arguments are worth keeping."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._names, self._lanes, self._calls = DistinctValues(), DistinctValues(), DistinctValues()
        self._device_names, self._shapes, self._messages, self._hierarchies = (
            DistinctValues(),
            DistinctValues(),
            DistinctValues(),
            DistinctValues(),
        )
        self._stacks = DistinctValues()
        self._keeps = np.empty(0, bool)  # for each name whether its arguments are kept
        self._host, self._device, self._flows = Columns(), Columns(), Columns()
        self._launches: dict[int, tuple[LaunchShape | None, int]] = {}
        self._number_of, self._three_of = Memo(small_of), lru_cache(None)(three_of)
        self.unread: Counter[str] = Counter()  # events that last, by categories that no reader knows
        self.memory = Memory()
        self.counters: list[CounterEvent] = []
        self._lane_of: dict[int | str, Memo] = {}  # by process, for pieces with only one

    def add(self, events: Sequence[Event]) -> None:
        """Take over what the table needs of `events`."""
        code = np.frombuffer(b"".join([e.cat.code for e in events]), np.int8)
        if (by_name := np.flatnonzero(code == BY_NAME)).size:
            code = code.copy()
            code[by_name] = [on_mtia(events[i].name) for i in by_name.tolist()]  # type: ignore[union-attr]
        host, device = Some((code > NEITHER) & (code < ON_DEVICE)), Some((code >= ON_DEVICE) & (code < ARROW))
        arrows, moments, neither = Some(code == ARROW), Some(code == MOMENT), Some(code == NEITHER)
        if host.count:
            self._add_host(host.of(events), host.of(code))
        if device.count:
            self._add_device(device.of(events), device.of(code) - np.int8(ON_DEVICE))
        if arrows.count:
            self._add_flows(arrows.of(events))
        if moments.count:
            self.memory.add([e for e in moments.of(events) if e.name == MEMORY])
        if neither.count:
            others = [e.cat for e in neither.of(events) if type(e) is Complete]
            self.counters += [e for e in neither.of(events) if type(e) is CounterEvent]
            self.unread.update(cat.value for cat in others if cat.name == UNREAD)

    def finish(self) -> tuple[HostEvents, DeviceEvents]:
        """Everything collected, sorted and nested, with times from the earliest event on."""
        starts = [c.smallest("start") for c in (self._host, self._device)]
        origin = self.origin_us = min((s for s in starts if s is not None), default=0.0)
        flows = self._taken_flows(origin)
        device = self._taken_device(_times(self._device, origin))
        columns = self._host
        start, end = _times(columns, origin)
        name, category = columns.taken("name", np.int32), columns.taken("category", np.int8)
        # perfkit's ranges are ranges, although PyTorch shows its cheap ones as operators (`ranges.line_marker`); so did
        # PyTorch 1.8 and 1.9 with all ranges, of which these are known.
        names = list(map(from_trace, self._names))
        ranges = np.array([*(n.startswith(_RANGES) and n[8:9] != ":" for n in names), False])
        category[ranges[name] & (category == OPERATOR)] = ANNOTATION
        host = arrange(
            HostEvents(
                names=names,
                name=name,
                category=category,
                lane=columns.taken("lane", np.int32),
                lanes=list(self._lanes),
                start=start,
                end=end,
                sequence=columns.taken("sequence"),
                forward_thread=columns.taken("forward_thread"),
                correlation=columns.taken("correlation"),
                call=columns.taken("call", np.int32),
                calls=[key_of(names[code], text) for code, text in self._calls],
                hierarchy=columns.taken("hierarchy", np.int32),
                hierarchies=list(self._hierarchies),
                stack=columns.taken("stack", np.int32),
                stacks=list(self._stacks),
                message=columns.taken("message", np.int32),
                messages=list(self._messages),
                flows=flows,
                launches=self._launches,
            )
        )
        return host, device

    def _add_host(self, events: list[Complete], category: Integers) -> None:
        args = [e.args for e in events]
        name = self._names.column([e.name for e in events])
        calls, others = Some(category == RUNTIME), Some(category != RUNTIME)
        of_calls, of_others = calls.of(args), others.of(args)
        hierarchy, stack, message = self._rarely_stated(of_others)
        self._host.add(
            name=name,
            category=category,
            lane=self._lane_codes([e.pid for e in events], [e.tid for e in events]),
            sequence=others.spread(tight([a.sequence for a in of_others])),
            forward_thread=others.spread(tight([a.forward_thread for a in of_others])),
            correlation=calls.spread(tight([a.correlation for a in of_calls])),
            call=self._call_codes(name, args),
            hierarchy=others.spread(hierarchy),
            stack=others.spread(stack),
            message=others.spread(message),
            start=reals([e.ts for e in events]),
            length=reals([e.dur for e in events]),
        )
        # AMD writes shapes and sizes at the launching call.
        for a in [a for a in of_calls if a.grid is not NOTHING or a.size is not None]:
            self._launches[a.correlation] = (self._launch_shape(SEPARATOR.join(_SHAPE(a))), whole_of(a.size))

    def _lane_codes(self, processes: list[int | str], threads: list[int | str]) -> Integers:
        process, thread, count = processes[0], threads[0], len(threads)
        if processes.count(process) < count:
            return self._lanes.column(zip(processes, threads, strict=True))
        if threads.count(thread) == count:
            return np.full(count, self._lanes.code((process, thread)), np.int32)
        if process not in self._lane_of:
            self._lane_of[process] = Memo(lambda thread: self._lanes.code((process, thread)))
        return self._lane_of[process].column(threads)

    def _call_codes(self, name: Integers, args: Sequence[Args]) -> Integers:
        kept = Some(self._kept(name))
        kinds = zip(kept.of(name).tolist(), recorded(kept.of(args)), strict=True)
        return kept.spread(self._calls.column(kinds))

    def _kept(self, name: Integers) -> Booleans:
        """For each event whether its arguments are kept."""
        if len(self._names) > len(self._keeps):
            new = [self._wanted(n) for n in islice(self._names, len(self._keeps), None)]
            self._keeps = np.append(self._keeps, np.array(new, bool))
        return self._keeps[name]

    def _rarely_stated(self, args: Sequence[Args]) -> tuple[Integers, Integers, Integers]:
        """Codes of module hierarchies, call stacks and messages, which most traces do not hold: one look finds none."""
        none = np.full(len(args), -1, np.int32)
        if not [a for a in args if a.hierarchy or a.stack or a.collective is not None]:
            return none, none, none
        paths, stacks = self._hierarchies.code, self._stacks.code
        hierarchy = np.array([paths(a.hierarchy) if a.hierarchy else -1 for a in args], np.int32)
        stack = np.array([stacks(a.stack) if a.stack else -1 for a in args], np.int32)
        return hierarchy, stack, self._message_codes(args)

    def _add_device(self, events: list[Complete], kind: Integers) -> None:
        args, moving = [e.args for e in events], Some((kind == COPY) | (kind == FILL))
        # Device and stream of a mark stand where a host event has process and thread, as does MTIA's device.
        marks = (kind == MARK).tolist()
        elsewhere = [m or e.cat is Category.MTIA_WORK for e, m in zip(events, marks, strict=True)]
        devices = [e.pid if there else e.args.device for e, there in zip(events, elsewhere, strict=True)]
        self._device.add(
            name=self._device_names.column([e.name for e in events]),
            kind=kind,
            device=self._number_of.column(devices),
            stream=self._number_of.column([e.tid if m else e.args.stream for e, m in zip(events, marks, strict=True)]),
            correlation=tight([a.correlation for a in args]),
            amount=moving.spread(np.array([moved_by(a) for a in moving.of(args)], np.int64)),
            shape=self._shapes.column(map(SEPARATOR.join, map(_SHAPE, args))),
            message=self._message_codes(args),
            start=reals([e.ts for e in events]),
            length=reals([e.dur for e in events]),
        )

    def _launch_shape(self, text: bytes) -> LaunchShape:
        grid, block, *resources = text.split(SEPARATOR, 4)
        return LaunchShape(self._three_of(grid), self._three_of(block), *map(real_of, map(decoded, resources)))

    def _message_codes(self, args: Sequence[Args]) -> Integers:
        stated = [a.collective for a in args]
        if not any(stated):
            return np.full(len(args), -1, np.int32)
        code = self._messages.code
        return np.array([-1 if a.collective is None else code(_message(a)) for a in args], np.int32)

    def _taken_device(self, times: tuple[Integers, Integers]) -> DeviceEvents:
        columns, (start, end) = self._device, times
        name, kind, number, stream = (columns.taken(n, t) for n, t in _CODES.items())
        order = np.argsort(start, kind="stable")
        marks, order = order[kind[order] == MARK], order[kind[order] != MARK]
        device = DeviceEvents(
            names=list(map(from_trace, self._device_names)),
            name=name[order],
            kind=kind[order],
            start=start[order],
            end=end[order],
            device=number[order],
            stream=stream[order],
            correlation=columns.taken("correlation")[order],
            amount=columns.taken("amount")[order],
            shape=columns.taken("shape", np.int32)[order],
            shapes=list(map(self._launch_shape, self._shapes)),
            message=columns.taken("message", np.int32)[order],
            messages=list(self._messages),
            marks=GpuAnnotations(name[marks], number[marks], stream[marks], start[marks], end[marks]),
        )
        for i in np.flatnonzero((device.kind == COPY) & (device.amount < 0)).tolist() if self._launches else ():
            device.amount[i] = self._launches.get(int(device.correlation[i]), (None, -1))[1]
        return device

    def _add_flows(self, flows: list[Any]) -> None:
        self._flows.add(
            start=np.array([f.ts for f in flows], np.float64),
            lane=self._lanes.column((f.pid, f.tid) for f in flows),
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
        ns = microseconds * 1e3
        return np.clip(np.rint(ns, out=ns), -_LATEST, _LATEST, out=ns).astype(np.int64)


def _message(args: Args) -> Message:
    group = args.group_text or args.group or ""
    elements = [-1 if n is None or n < 0 else n for n in (args.elements_in, args.elements_out)]
    size, ranks = args.group_size or -1, (args.group_ranks or "")[:200]
    return Message(args.collective or "", elements[0], elements[1], args.dtype or "", group, size, ranks)
