"""States of the host's threads, moment by moment, and which of them held up a launch.

A launch comes from one thread, and that thread may wait for another: the thread of the steps for autograd's while the
backward pass runs, autograd's for the thread of the steps until it is called. A thread with an operator or a CUDA call
open waits for nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.intervals import Steps, Union
from perfkit.profile_names import CPU_COLLECTIVES
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.decode.events import OPERATOR, OVERHEAD, RUNTIME, HostEvents
from perfkit.readers.kineto.measure.rows import PROFILERS_OWN

_NEVER = np.iinfo(np.int64).min


@dataclass
class Spans:
    """Intervals [start, end) in ns, sorted, that do not overlap."""

    start: Integers
    end: Integers

    def holding(self, moments: Integers) -> Integers:
        """The index of the interval around each moment, or −1."""
        if not len(self.start):
            return np.full(len(moments), -1, np.int64)
        index = np.searchsorted(self.start, moments, side="right") - 1
        return np.where((index >= 0) & (moments < self.end[np.maximum(index, 0)]), index, -1)


@dataclass
class Blockers:
    """Which thread held up a launch: from each of `moments` to the next `lane`, in its innermost `event` (−1: none).

    `open`: an operator or CUDA call was open there. `between`: the last autograd node before, where the engine was
    between two nodes of a backward pass, else −1. `rank`: it waited for another rank; `recording`: the profiler held it
    up. `seen`: the trace shows what the thread did at the time.
    """

    moments: Integers
    lane: Integers
    event: Integers
    open: Booleans
    between: Integers
    rank: Booleans
    recording: Booleans
    seen: Booleans


class TraceThreads:
    """The threads of a trace, as they are of interest at some times, `asked`."""

    def __init__(self, host: HostEvents, place: EventPlaces, steps: Steps, asked: Spans) -> None:
        self._host, self._place, self._steps, self._asked = host, place, steps, asked
        working = (host.category == OPERATOR) | (host.category == RUNTIME)
        self._working = working
        self._within = host.nearest(working) >= 0  # for each event whether an operator or call is open in it
        self._threads: dict[int, TraceThread] = {}
        self._known: dict[frozenset[int], tuple[Integers, dict[int, _State]]] = {}
        nodes = np.flatnonzero(self._outermost_nodes())
        self._autograd = [self.of(lane) for lane in _distinct(host.lane[nodes])]
        for thread in self._autograd:
            thread.add_runs(nodes[host.lane[nodes] == thread.lane], self.of(steps.lane))

    def of(self, lane: int) -> TraceThread:
        """The thread `lane`."""
        if lane not in self._threads:
            self._threads[lane] = TraceThread(self._host, lane, self._working, self._steps)
        return self._threads[lane]

    def holding_up(self, lane: int) -> Blockers:
        """Return the threads that held up the launches of thread `lane` in the times asked for."""
        main = self._steps.lane
        moments, states = self._states(frozenset((lane, main, *(t.lane for t in self._autograd))))
        chosen, mine = np.full(len(moments), main, np.int64), states[lane]
        # The last that holds decides.
        chosen[mine.event >= 0] = lane
        for thread in self._autograd:
            chosen[states[thread.lane].in_run] = thread.lane
        chosen[states[main].open] = main
        chosen[mine.open | mine.in_run] = lane
        columns = [f.name for f in fields(Blockers) if f.name not in ("moments", "lane")]
        found = {c: _picked(chosen, {n: getattr(s, c) for n, s in states.items()}) for c in columns}
        return Blockers(moments, chosen, **found)

    def _states(self, lanes: frozenset[int]) -> tuple[Integers, dict[int, _State]]:
        """The moments of the times asked for at which anything changes in some threads, and what each was in then."""
        if lanes not in self._known:
            threads = [self.of(lane) for lane in sorted(lanes)]
            spans = [(self._held_up(t), self._waits(t), t.runs) for t in threads]
            changes = [t.moments for t in threads] + [p for of in spans for s in of for p in (s.start, s.end)]
            inside = [c[self._asked.holding(c) >= 0] for c in changes]
            # A stable sort merges what is sorted already.
            moments = np.sort(np.concatenate([self._asked.start, self._asked.end, *inside]), kind="stable")
            moments = moments[np.append(True, moments[1:] != moments[:-1])]
            states = [_State(t, moments, self._within, *of[:2]) for t, of in zip(threads, spans, strict=True)]
            self._known[lanes] = moments, {t.lane: s for t, s in zip(threads, states, strict=True)}
        return self._known[lanes]

    def _outermost_nodes(self) -> Booleans:
        node, parent = self._place.node, self._host.parent
        above = np.where(parent >= 0, node[np.maximum(parent, 0)], -1) if len(node) else node
        return (node == np.arange(len(node))) & (above < 0)

    def _held_up(self, thread: TraceThread) -> Spans:
        """When CUPTI's work for the profiler held a thread up.

        Its records name no thread. It works in the one that made the last CUDA call before, and that waits
        meanwhile. A thread that waits inside an operator or call for most of it, and until after its end, waits for
        a lock: of CUPTI, or of the thread in which it works (as autograd does for NCCL's watchdog).
        """
        begin, end, whose = self._recording
        since = np.maximum(begin, thread.last_mark(end))
        locked = (thread.working.holding(end) >= 0) & (2 * (end - since) > end - begin)
        found = np.where(whose == thread.lane, True, locked)
        return _spans(since[found], end[found])

    @cached_property
    def _recording(self) -> tuple[Integers, Integers, Integers]:
        """Start and end of CUPTI's work for the profiler, and the thread in which it works (−1: none waits)."""
        host = self._host
        names = host.named([n in PROFILERS_OWN for n in host.names])
        found = np.flatnonzero((host.category == OVERHEAD) & names)
        begin, end = host.start[found], host.end[found]
        last, whose = np.full(len(found), _NEVER), np.full(len(found), -1, np.int64)
        calling = _distinct(host.lane[host.category == RUNTIME]) if len(found) else []
        for thread in map(self.of, calling):
            before = thread.last_call(begin)
            nearer = ((whose < 0) | (before > last)) & thread.still(begin, end)
            whose[nearer], last[nearer] = thread.lane, before[nearer]
        return begin, end, whose

    def _waits(self, thread: TraceThread) -> Spans:
        """When a thread waited for a collective that other threads carry out on CPUs: it has no event of its own until
        after the collective's end. From the thread's last event, or the collective's start, to that end."""
        host = self._host
        names = host.named([n.startswith(CPU_COLLECTIVES) for n in host.names])
        found = np.flatnonzero(names & (host.lane != thread.lane))
        begin, end = host.start[found], host.end[found]
        begin = np.maximum(begin, thread.last_end(end))
        waits = (thread.working.holding(end) < 0) & (begin < end)
        return _spans(begin[waits], end[waits])


@dataclass
class TraceThread:
    """One thread: the `moments` at which its innermost event changes and which `event` it is from then on (−1: none),
    when an operator or CUDA call was open (`working`), and its `runs` of autograd's engine."""

    host: HostEvents
    lane: int
    chosen: Booleans  # operators and CUDA calls
    steps: Steps
    moments: Integers = field(init=False)
    event: Integers = field(init=False)
    working: Spans = field(init=False)
    seen: Spans = field(init=False)
    runs: Spans = field(init=False)
    nodes: Integers = field(init=False)

    def __post_init__(self) -> None:
        low, high = (int(i) for i in np.searchsorted(self.host.lane, [self.lane, self.lane + 1]))
        self.moments, self.event = _innermost(self.host, low, high)
        mine = np.flatnonzero(self.chosen[low:high]) + low
        cover = Union(self.host.start[mine], self.host.end[mine])
        self.working = Spans(cover.start, cover.end)
        self._marks = np.sort(np.concatenate([self.host.start[mine], self.host.end[mine]]))
        calls = mine[self.host.category[mine] == RUNTIME]
        self._calls = np.sort(np.concatenate([self.host.start[calls], self.host.end[calls]]))
        self.seen = self._observed()
        self.runs, self.nodes = _spans(calls[:0], calls[:0]), calls[:0]

    def add_runs(self, nodes: Integers, main: TraceThread) -> None:
        """The stretches from one outermost autograd node to another in which the engine had the word: between two nodes
        of one, the thread of the steps begins nothing."""
        start, end = self.host.start[nodes], self.host.end[nodes]
        begun = np.searchsorted(main.working.start, start[1:]) - np.searchsorted(main.working.start, end[:-1])
        same = (begun == 0) & (main.working.holding(end[:-1]) < 0)
        first, last = np.append(True, ~same), np.append(~same, True)
        self.runs, self.nodes = Spans(start[first], end[last]), nodes

    def last_call(self, moments: Integers) -> Integers:
        """When the last CUDA call before each moment began or ended."""
        return _last(self._calls, moments)

    def last_mark(self, moments: Integers) -> Integers:
        """When the last operator or CUDA call before each moment began or ended."""
        return _last(self._marks, moments)

    def last_end(self, moments: Integers) -> Integers:
        """When the last operator or CUDA call before each moment ended."""
        return _last(self.working.end, moments)

    def still(self, start: Integers, end: Integers) -> Booleans:
        """Return whether no operator or CUDA call began or ended inside each interval."""
        inside = np.searchsorted(self._marks, end, side="left") - np.searchsorted(self._marks, start, side="right")
        return np.asarray(inside <= 0)

    def _observed(self) -> Spans:
        """From the thread's first operator or CUDA call to the end of the last, and the steps that hold these."""
        if not len(self.working.start):
            return Spans(self.working.start, self.working.end)
        edges = np.array([self.working.start[0], self.working.end[-1] - 1])
        low, high = self.working.start[0], self.working.end[-1]
        at = self.steps.at(edges)
        if at[0] >= 0:
            low = min(low, self.steps.start[at[0]])
        if at[1] >= 0:
            high = max(high, self.steps.end[at[1]])
        return Spans(np.array([low]), np.array([high]))


class _State:
    """Return the state of a thread from each of `moments` to the next; columns as in `Blockers`."""

    def __init__(
        self, thread: TraceThread, moments: Integers, within: Booleans, recording: Spans, waits: Spans
    ) -> None:
        at = np.searchsorted(thread.moments, moments, side="right") - 1
        self.event = np.where(at >= 0, thread.event[at], -1) if len(thread.event) else np.full(len(moments), -1)
        self.open = (self.event >= 0) & within[self.event]
        self.in_run = thread.runs.holding(moments) >= 0
        self.seen = thread.seen.holding(moments) >= 0
        self.recording = recording.holding(moments) >= 0
        self.rank = ~self.open & (waits.holding(moments) >= 0)
        self.between = np.full(len(moments), -1)
        gap = np.flatnonzero(self.in_run & ~self.open)
        host, event = thread.host, self.event[gap]
        node = thread.nodes[np.searchsorted(host.start[thread.nodes], moments[gap], side="right") - 1]
        # A range or function that opened since the last node is a hook's.
        engine = (event < 0) | (host.start[event] < host.end[node])
        self.between[gap] = np.where(engine, node, -1)


def _picked(lane: Integers, values: dict[int, Integers]) -> Integers:
    """At each moment the value of the thread named there."""
    found = np.empty_like(next(iter(values.values())))
    for value, mine in values.items():
        np.copyto(found, mine, where=lane == value)
    return found


def _distinct(lane: Integers) -> list[int]:
    return np.flatnonzero(np.bincount(lane)).tolist()


def _spans(start: Integers, end: Integers) -> Spans:
    cover = Union(start, end)
    return Spans(cover.start, cover.end)


def _last(sorted_: Integers, moments: Integers) -> Integers:
    """The last of `sorted_` that is not after each moment; long ago without one."""
    at = np.searchsorted(sorted_, moments, side="right") - 1
    return np.where(at >= 0, sorted_[np.maximum(at, 0)], _NEVER) if len(sorted_) else np.full(len(moments), _NEVER)


def _innermost(host: HostEvents, low: int, high: int) -> tuple[Integers, Integers]:
    """The moments at which a thread's innermost event changes, and which it is from then on (−1: none)."""
    index = np.arange(low, high, dtype=np.int32)
    index = index[host.end[low:high] > host.start[low:high]]
    # At one moment ends come before starts, inner ends before outer ones, outer starts before inner ones. Starts are in
    # order already, and to merge two sorted halves is what a stable sort does best.
    ends = index[::-1][np.argsort(host.end[index[::-1]], kind="stable")]
    moment = np.concatenate([host.end[ends], host.start[index]])
    order = np.argsort(moment, kind="stable")
    inner = np.concatenate([host.parent[ends], index])[order]
    return moment[order], inner
