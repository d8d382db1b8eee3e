"""The events of a trace as numpy columns, with the nesting of each thread worked out.

Host events (operators, annotations, runtime calls) and device events (kernels, copies, fills) are two sets of columns.
Times are whole nanoseconds from the first event, so that sums of self times are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from perfkit.readers.kineto.calls import Key

OPERATOR, ANNOTATION, RUNTIME, PYTHON, OVERHEAD = range(5)
KERNEL, COPY, FILL, MARK = range(4)
KINDS = ("gpu_kernel", "memcpy", "memset")  # a mark is no work: `DeviceEvents.marks` holds them
_NEVER = 1 << 62  # ns
_BLOCK = 1 << 14  # events nested at once as lists, which are larger than columns
_PART, _ROUNDS = 1 << 18, 100  # events nested at once as columns, and how far they climb

Integers = npt.NDArray[Any]
Booleans = npt.NDArray[np.bool_]


class LaunchShape(NamedTuple):
    """How a kernel was launched; −1 where the trace does not say. Occupancy in percent, shared memory in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: float
    shared_memory: float
    occupancy: float


class Message(NamedTuple):
    """What a kernel of NCCL sends: collective, elements in and out a rank (−1: unknown), dtype, group and its size."""

    collective: str
    elements_in: int
    elements_out: int
    dtype: str
    group: str
    group_size: int


@dataclass
class Flows:
    """The profiler's arrows from a forward operator to the autograd node that it made: where both ends start."""

    forward: Integers
    forward_lane: Integers
    backward: Integers
    backward_lane: Integers

    @classmethod
    def none(cls) -> Flows:
        return cls(*(np.empty(0, np.int64) for _ in range(4)))


@dataclass
class HostEvents:
    """What ran on the host's threads, sorted by thread, then start; a parent stands before its children.

    `names` holds each name once, `name` an index into it. `lane` is a thread, an index into `lanes` of (pid, tid).
    `sequence` and `forward_thread` are autograd's numbers, `correlation` that of a runtime call (−1: none); `call` is
    an index into `calls`, the distinct names with arguments, −1 where nobody asks for them. `parent` is the
    innermost event of the same thread around an event, or −1; `self_ns` the duration without that of the children.
    """

    names: list[str]
    name: Integers
    category: Integers
    lane: Integers
    lanes: list[tuple[int | str, int | str]]
    start: Integers
    end: Integers
    sequence: Integers
    forward_thread: Integers
    correlation: Integers
    call: Integers
    calls: list[Key]
    hierarchy: Integers  # index into `hierarchies`, the texts of "Module Hierarchy" of old traces
    hierarchies: list[str]
    message: Integers  # index into `messages`, what a collective's operator sends
    messages: list[Message]
    flows: Flows = field(default_factory=Flows.none)
    launches: dict[int, tuple[LaunchShape | None, int]] = field(default_factory=dict)  # by correlation: shape, bytes
    parent: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    self_ns: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    clipped: int = 0  # events that ended more than 1 µs after the event around them

    def __len__(self) -> int:
        return len(self.name)

    def named(self, test: Sequence[bool] | Booleans) -> Booleans:
        """For each event whether `test`, given for each of `names`, holds for its name."""
        flags = np.asarray(test, dtype=bool)
        return flags[self.name] if len(flags) else np.zeros(len(self), dtype=bool)

    def nearest(self, chosen: Booleans) -> Integers:
        """The innermost `chosen` event around each event, itself included, or −1."""
        if not chosen.any():
            return np.full(len(self), -1, np.int32)
        index = np.arange(len(self), dtype=np.int32)
        found = climb(np.where(chosen | (self.parent < 0), index, self.parent))
        return np.where(chosen.take(found), found, -1)

    def inherit(self, own: Integers) -> Integers:
        """For each event the value of `own` at the innermost event around it (itself included) that has one (≥ 0)."""
        if not len(self):
            return own.copy()
        index = np.arange(len(self), dtype=np.int32)
        return own.take(climb(np.where((own >= 0) | (self.parent < 0), index, self.parent)))


def climb(step: Integers) -> Integers:
    """Where each index ends up when `step` is followed until it stands still; the way doubles in each round."""
    while True:
        further = step.take(step)  # twice as fast as step[step]
        if np.array_equal(further, step):
            return further
        step = further


@dataclass
class Marks:
    """The profiler's own echo of annotations on a GPU: from the first to the last activity of a range on one stream.

    `name` is an index into the names of the `DeviceEvents` that hold them.
    """

    name: Integers
    device: Integers
    stream: Integers
    start: Integers
    end: Integers

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def none(cls) -> Marks:
        return cls(*(np.empty(0, np.int64) for _ in range(5)))


@dataclass
class DeviceEvents:
    """What ran on a GPU, by start. Numbers are −1 where the trace does not tell; `amount` is in bytes."""

    names: list[str]
    name: Integers
    kind: Integers  # index into KINDS
    start: Integers
    end: Integers
    device: Integers
    stream: Integers
    correlation: Integers
    amount: Integers
    shape: Integers
    shapes: list[LaunchShape]
    message: Integers
    messages: list[Message]
    marks: Marks = field(default_factory=Marks.none)

    def __len__(self) -> int:
        return len(self.name)


def arrange(events: HostEvents) -> HostEvents:
    """Sort `events` and fill in the nesting."""
    order = _order(events)
    for column in (
        "name", "category", "lane", "start", "end", "sequence", "forward_thread", "correlation", "call", "hierarchy",
        "message",
    ):  # fmt: skip
        values = getattr(events, column)
        values[:] = values.take(order)  # in place, for memory that is new costs more than to copy
    _nest(events)
    return events


def _order(events: HostEvents) -> Integers:
    """By thread, then start, the longer first; an operator nests in a range, else the later recorded is the inner one.

    Few events start together, and only these are sorted by end and category: files are nearly in order of start.
    """
    order = np.lexsort((events.start, events.lane))
    start, lane = events.start.take(order), events.lane.take(order)
    together = np.zeros(len(order) + 1, bool)  # whether an event starts with the one before it
    together[1:-1] = (start[1:] == start[:-1]) & (lane[1:] == lane[:-1])
    tied = np.flatnonzero(together[1:] | together[:-1])
    chosen, group = order.take(tied), np.cumsum(~together[:-1]).take(tied)
    order[tied] = chosen[np.lexsort((events.category[chosen] == OPERATOR, -events.end[chosen], group))]
    return order


def _nest(events: HostEvents) -> None:
    """Fill parent and self time."""
    parents = _parents(events)
    if parents is None or (events.end > np.where(parents >= 0, events.end[parents], _NEVER)).any():
        parents = _cut(events)
    events.parent = parents
    events.self_ns = without_children(parents, events.end - events.start)


def _parents(events: HostEvents) -> Integers | None:
    """The innermost event around each where every event ends inside it; None where that takes too long to find.

    All events climb at once, from the event before them to the event around that, until they reach one still open.
    """
    parents = np.arange(-1, len(events) - 1, dtype=np.int32)
    parents[np.flatnonzero(np.diff(events.lane, prepend=-1))] = -1
    for first in range(0, len(events), _PART):
        low = np.flatnonzero(parents[first : first + _PART] >= 0) + first
        for _ in range(_ROUNDS):
            around = parents.take(low)
            ended = (around >= 0) & (events.end.take(around) <= events.start.take(low))
            low = low.compress(ended)
            if not len(low):
                break
            parents[low] = parents.take(around.compress(ended))
        else:
            return None
    return parents


def _cut(events: HostEvents) -> Integers:
    """The parents, where events outlast those around them: these are cut.

    An event that outlasts its parent is cut to it (rounding; a broken trace). But a range may open in a Python function
    and outlast it by design (`ProfilerStep#N` opens in `step()`): then the function is cut to where the range opens.
    """
    parents = np.empty(len(events), np.int32)
    stack, ends = [-1], [_NEVER]  # the open events of a thread, outermost first: index and end; below them nothing
    lane = -1
    for first in range(0, len(events), _BLOCK):
        part = slice(first, first + _BLOCK)
        found: list[int] = []
        columns = (c[part].tolist() for c in (events.start, events.end, events.lane))
        for i, begin, end, on in zip(range(first, first + _BLOCK), *columns, strict=False):
            if on != lane:
                lane = on
                stack, ends = [-1], [_NEVER]
            while ends[-1] <= begin:
                stack.pop()
                ends.pop()
            if end > ends[-1]:
                _cut_functions(events, i, begin, stack, ends)
                if end > ends[-1]:
                    events.clipped += bool(events.category[i] != PYTHON and end - ends[-1] > 1000)
                    end = ends[-1]
                    events.end[i] = end
            found.append(stack[-1])
            stack.append(i)
            ends.append(end)
        parents[part] = found
    return parents


def _cut_functions(events: HostEvents, i: int, begin: int, stack: list[int], ends: list[int]) -> None:
    """Close the Python functions around event `i`, if that is a range that outlasts them, where it opens."""
    while events.category[i] == ANNOTATION and events.end[i] > ends[-1] and events.category[stack[-1]] == PYTHON:
        events.end[stack[-1]] = begin
        stack.pop()
        ends.pop()


def without_children(parent: Integers, amount: Integers) -> Integers:
    """`amount` of each event less that of its children; `parent` gives each event's, −1 for none."""
    inner = np.flatnonzero(parent >= 0)
    # Sums of float64 are exact for whole numbers up to 2⁵³ ns, 104 days.
    of_children = np.bincount(parent[inner], weights=amount[inner], minlength=len(parent))
    return amount - of_children.astype(np.int64)
