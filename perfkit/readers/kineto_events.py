"""The events of a trace as numpy columns, with the nesting of each thread worked out.

Host events (operators, annotations, runtime calls) and device events (kernels, copies, fills) are two sets of columns.
Times are whole nanoseconds from the first event, so that sums of self times are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfkit.readers.kineto_json import Args, Event

OPERATOR, ANNOTATION, RUNTIME, PYTHON, OVERHEAD = range(5)
_HOST = {
    "cpu_op": OPERATOR,
    "operator": OPERATOR,  # before 2021
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "python_function": PYTHON,
    "overhead": OVERHEAD,
}
_DEVICE = {
    "kernel": "gpu_kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    "Kernel": "gpu_kernel",
    "Memcpy": "memcpy",
    "Memset": "memset",
}

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass
class HostEvents:
    """What ran on the host's threads, sorted by thread, then start; a parent stands before its children.

    `names` holds each name once, `name` an index into it. `lane` is a thread, an index into `lanes` of (pid, tid).
    `parent` is the innermost event of the same thread around an event, or −1; `level` its depth from 0; `self_ns` the
    duration without that of the children.
    """

    names: list[str]
    name: Integers
    category: Integers
    lane: Integers
    lanes: list[tuple[int | str, int | str]]
    start: Integers
    end: Integers
    args: list[Args]
    parent: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    level: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    self_ns: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    clipped: int = 0  # events that ended more than 1 µs after the event around them

    def __len__(self) -> int:
        return len(self.name)

    def named(self, test: Sequence[bool] | Booleans) -> Booleans:
        """For each event whether `test`, given for each of `names`, holds for its name."""
        flags = np.asarray(test, dtype=bool)
        return flags[self.name] if len(flags) else np.zeros(len(self), dtype=bool)

    def inherit(self, own: Integers) -> Integers:
        """For each event the value of `own` at the innermost event around it (itself included) that has one (≥ 0)."""
        result = own.copy()
        for level in range(1, int(self.level.max(initial=0)) + 1):
            here = np.flatnonzero(self.level == level)
            missing = here[result[here] < 0]
            result[missing] = result[self.parent[missing]]
        return result


@dataclass
class DeviceEvents:
    """What ran on a GPU, by start."""

    name: list[str]
    kind: list[str]
    start: Integers
    end: Integers
    args: list[Args]

    def __len__(self) -> int:
        return len(self.name)


def split(events: Sequence[Event]) -> tuple[HostEvents, DeviceEvents]:
    """The complete ("X") events as columns; everything that is not work, range or call is left out."""
    complete = [e for e in events if e.ph == "X"]
    host = [e for e in complete if e.cat in _HOST]
    device = [e for e in complete if e.cat in _DEVICE]
    origin = min((e.ts for e in (*host, *device)), default=0.0)
    return _host_events(host, origin), _device_events(device, origin)


def _nanoseconds(events: Sequence[Event], origin: float) -> tuple[Integers, Integers]:
    """Start and end of each event in ns after `origin` (µs)."""
    starts = np.array([e.ts for e in events], dtype=float) - origin
    durations = np.array([e.dur for e in events], dtype=float)
    start = np.rint(np.nan_to_num(starts) * 1e3).astype(np.int64)
    return start, start + np.maximum(np.rint(np.nan_to_num(durations) * 1e3).astype(np.int64), 0)


def _host_events(events: list[Event], origin: float) -> HostEvents:
    start, end = _nanoseconds(events, origin)
    names: dict[str, int] = {}
    lanes: dict[tuple[int | str, int | str], int] = {}
    name = np.array([names.setdefault(e.name, len(names)) for e in events], dtype=np.int64)
    lane = np.array([lanes.setdefault((e.pid, e.tid), len(lanes)) for e in events], dtype=np.int64)
    category = np.array([_HOST[e.cat] for e in events], dtype=np.int64)
    # Of two events with the same start and end the later recorded is the inner one; operators nest in ranges.
    order = np.lexsort((category == OPERATOR, -end, start, lane))
    result = HostEvents(
        names=list(names), name=name[order], category=category[order], lane=lane[order], lanes=list(lanes),
        start=start[order], end=end[order], args=[events[i].args for i in order],
    )  # fmt: skip
    _nest(result)
    return result


def _device_events(events: list[Event], origin: float) -> DeviceEvents:
    start, end = _nanoseconds(events, origin)
    order = np.argsort(start, kind="stable")
    chosen = [events[i] for i in order]
    kinds = [_DEVICE[e.cat] for e in chosen]
    return DeviceEvents([e.name for e in chosen], kinds, start[order], end[order], [e.args for e in chosen])


def _nest(events: HostEvents) -> None:
    """Fill parent, level and self time. An event that outlasts its parent is cut to it (rounding; a broken trace)."""
    starts, ends, lanes = events.start.tolist(), events.end.tolist(), events.lane.tolist()
    parents, levels = [-1] * len(starts), [0] * len(starts)
    open_events: list[int] = []
    lane = -1
    for i, begin in enumerate(starts):
        if lanes[i] != lane:
            lane = lanes[i]
            open_events.clear()
        while open_events and ends[open_events[-1]] <= begin:
            open_events.pop()
        if open_events:
            around = open_events[-1]
            parents[i], levels[i] = around, len(open_events)
            if ends[i] > ends[around]:
                events.clipped += ends[i] - ends[around] > 1000
                ends[i] = ends[around]
        open_events.append(i)
    events.parent, events.level = np.array(parents, np.int64), np.array(levels, np.int64)
    events.end = np.array(ends, np.int64)
    events.self_ns = without_children(events, events.end - events.start)


def without_children(events: HostEvents, amount: Integers) -> Integers:
    """`amount` of each event less that of its children."""
    inner = events.parent >= 0
    of_children = np.zeros(len(events), np.int64)
    np.add.at(of_children, events.parent[inner], amount[inner])
    return amount - of_children
