"""The events of a trace as numpy columns.

Host events (operators, annotations, runtime calls) and device events (kernels, copies, fills) are two sets of columns.
Times are whole nanoseconds from the first event, so that sums of self times are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from perfkit.columns import Booleans, Integers, Reals
from perfkit.profile_names import AT

OPERATOR, ANNOTATION, RUNTIME, PYTHON, OVERHEAD = range(5)
KERNEL, COPY, FILL, MARK = range(4)
KINDS = ("gpu_kernel", "memcpy", "memset")  # a mark does no work: `DeviceEvents.marks` holds them


Key = tuple[str, bytes, bytes, bytes, bytes]  # name, dims, types, strides and concrete inputs as in the file


class LaunchShape(NamedTuple):
    """How a kernel was launched; −1 where the trace does not say. Occupancy in percent, shared memory in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: float
    shared_memory: float
    occupancy: float


class Message(NamedTuple):
    """The message of a kernel of NCCL: collective, elements in and out a rank (−1: unknown), dtype, group, its size,
    and the ranks in it as text, such as `[0, 1]`."""

    collective: str
    elements_in: int
    elements_out: int
    dtype: str
    group: str
    group_size: int
    ranks: str = ""


@dataclass
class Flows:
    """The profiler's arrows from a forward operator to the autograd node that it made: where both ends start."""

    forward: Integers
    forward_lane: Integers
    backward: Integers
    backward_lane: Integers

    @classmethod
    def none(cls) -> Flows:
        """No arrows."""
        return cls(*(np.empty(0, np.int64) for _ in range(4)))


@dataclass
class HostEvents:
    """Events on the host's threads, sorted by thread, then start; a parent comes before its children.

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
    stack: Integers  # index into `stacks`, the texts of "Call stack", the innermost frame first
    stacks: list[str]
    message: Integers  # index into `messages`, what a collective's operator sends
    messages: list[Message]
    flows: Flows = field(default_factory=Flows.none)
    launches: dict[int, tuple[LaunchShape | None, int]] = field(default_factory=dict)  # by correlation: shape, bytes
    parent: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    self_ns: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    clipped: int = 0  # events that ended more than 1 µs after the event around them

    def __len__(self) -> int:
        return len(self.name)

    @property
    def tells_frames(self) -> bool:
        """Return whether events may tell which line of a program called them."""
        return bool(self.stacks or (self.category == PYTHON).any() or any(n.startswith(AT) for n in self.names))

    def named(self, test: Sequence[bool] | Booleans) -> Booleans:
        """For each event whether `test`, given for each of `names`, holds for its name."""
        flags = np.asarray(test, dtype=bool)
        return flags[self.name] if len(flags) else np.zeros(len(self), dtype=bool)

    def children(self, chosen: Sequence[int]) -> list[list[int]]:
        """The events directly inside each of `chosen`, in order."""
        place = {event: i for i, event in enumerate(chosen)}
        found: list[list[int]] = [[] for _ in chosen]
        for child in np.flatnonzero(np.isin(self.parent, chosen)).tolist():
            found[place[int(self.parent[child])]].append(child)
        return found

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
    """Return where each index ends up when `step` is followed until it does not move; the way doubles in each round."""
    while True:
        further = step.take(step)  # twice as fast as step[step]
        if np.array_equal(further, step):
            return further
        step = further


@dataclass
class GpuAnnotations:
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
    def none(cls) -> GpuAnnotations:
        """No marks."""
        return cls(*(np.empty(0, np.int64) for _ in range(5)))


@dataclass
class MemoryEvents:
    """Allocations and releases in the order of the file: when, in ns of the trace's own clock, on which thread, how
    many bytes (negative: released) at which address, and what the allocator of a device holds from then on. NaN where
    it is not known.

    `device` is an index into `devices`, pairs of PyTorch's device type and index; `thread` one into `threads`.
    """

    time_ns: Reals
    thread: Integers
    bytes: Reals
    allocated: Reals
    reserved: Reals
    address: Reals
    device: Integers
    devices: list[tuple[int | None, int | None]]
    threads: list[int | str]
    origin_ns: float = 0.0  # of the other events' times on this clock

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass
class DeviceEvents:
    """Activities of a GPU, by start. Numbers are −1 where the trace has none; `amount` is in bytes."""

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
    marks: GpuAnnotations = field(default_factory=GpuAnnotations.none)

    def __len__(self) -> int:
        return len(self.name)


def in_whole_us(start: Integers, end: Integers) -> bool:
    """Return whether all times are whole µs, as of PyTorch before 2.0: what is shorter has a duration of 0."""
    return bool((start % 1000 == 0).all() and ((end - start) % 1000 == 0).all())


def values_at(values: Integers, events: Integers) -> Integers:
    """`values` of some `events`; −1 for no event (−1)."""
    if not len(values):
        return np.full(len(events), -1, np.int32)
    return np.where(events >= 0, values[np.maximum(events, 0)], -1)
