"""Events of the host sorted by thread and start, with the nesting of each thread worked out."""

from __future__ import annotations

import numpy as np

from perfkit.columns import Integers
from perfkit.profile_names import STEP
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, PYTHON, HostEvents

_NEVER = 1 << 62  # ns
_MESSAGES = tuple(f"{library}:{way}" for library in ("gloo", "mpi", "ucc") for way in ("send", "recv"))
_ROUNDING = 1000  # ns: traces may be in whole µs
_MODE = "PythonDispatchMode"  # the event around each operator that a `TorchDispatchMode` handles
_BLOCK = 1 << 14  # events nested at once as lists, which are larger than columns
_PART, _ROUNDS = 1 << 18, 100  # events nested at once as columns, and how far they climb


def arrange(events: HostEvents) -> HostEvents:
    """Sort `events` and fill in the nesting."""
    _apart(events)
    _one_lane(events)
    order = _order(events)
    for column in (
        "name", "category", "lane", "start", "end", "sequence", "forward_thread", "correlation", "call", "hierarchy",
        "message",
    ):  # fmt: skip
        values = getattr(events, column)
        values[:] = values.take(order)  # in place, for memory that is new costs more than to copy
    _nest(events)
    return events


def _apart(events: HostEvents) -> None:
    """Give ranges of point-to-point messages lanes of their own.

    A library's thread opens and closes the range of a collective. That of a message opens in `c10d::recv_` on the
    thread of the program, and closes when the wait for it ends: it nests in nothing.
    """
    chosen = np.flatnonzero(events.named([name.startswith(_MESSAGES) for name in events.names]))
    free: dict[int | str, list[tuple[int, int]]] = {}  # by process: when each lane is free, and its number
    for i in chosen[np.argsort(events.start[chosen], kind="stable")].tolist():
        process = events.lanes[events.lane[i]][0]
        lanes = free.setdefault(process, [])
        at = next((k for k, (until, _) in enumerate(lanes) if until <= events.start[i]), len(lanes))
        if at == len(lanes):
            lanes.append((0, len(events.lanes)))
            events.lanes.append((process, f"messages {at + 1}"))
        events.lane[i] = lanes[at][1]
        lanes[at] = (int(events.end[i]), lanes[at][1])


def _one_lane(events: HostEvents) -> None:
    """Give perfkit's steps, where they are on several threads, and what these threads did in them, one lane: in a
    server each is a request, answered by whichever thread was free."""
    steps = np.flatnonzero(events.named([name.startswith(STEP) for name in events.names]))
    threads = events.lane[steps]
    if len(steps) < 2 or (threads == threads[0]).all():
        return
    lane, one = events.lane.copy(), len(events.lanes)
    events.lanes.append((events.lanes[threads[0]][0], "requests"))
    for step in steps.tolist():
        inside = (events.start >= events.start[step]) & (events.end <= events.end[step])
        events.lane[inside & (lane == lane[step])] = one


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
    or an operator and outlast it by design: `ProfilerStep#N` opens in `step()`, and under a `TorchDispatchMode` a range
    opens in the mode's event. Then that is cut to where the range opens.
    """
    modes = events.name == (events.names.index(_MODE) if _MODE in events.names else -1)
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
                _cut_around(events, i, begin, stack, ends)
                if end > ends[-1]:
                    shown = events.category[i] != PYTHON and not modes[i]
                    events.clipped += bool(shown and end - ends[-1] > _ROUNDING)
                    end = ends[-1]
                    events.end[i] = end
            found.append(stack[-1])
            stack.append(i)
            ends.append(end)
        parents[part] = found
    return parents


def _cut_around(events: HostEvents, i: int, begin: int, stack: list[int], ends: list[int]) -> None:
    """Close the Python functions and operators around event `i`, if that is a range that outlasts them, where it
    opens."""
    while events.category[i] == ANNOTATION and events.end[i] > ends[-1]:
        around = events.category[stack[-1]]
        if around != PYTHON and not (around == OPERATOR and events.end[i] > ends[-1] + _ROUNDING):
            return
        events.end[stack[-1]] = begin
        stack.pop()
        ends.pop()


def without_children(parent: Integers, amount: Integers) -> Integers:
    """`amount` of each event less that of its children; `parent` gives each event's, −1 for none."""
    inner = np.flatnonzero(parent >= 0)
    # Sums of float64 are exact for whole numbers up to 2⁵³ ns, 104 days.
    of_children = np.bincount(parent[inner], weights=amount[inner], minlength=len(parent))
    return amount - of_children.astype(np.int64)
