"""The lines of a recorded trace: by its own stacks, else by those of a step that was recorded after it.

The two are joined by what they call and in which order. A backward operator has the line of its forward one, unless the
user's own code runs inside the backward pass. Time between two calls is shared out among the lines that the other step
went through between the same two.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.intervals import Steps
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents
from perfkit.readers.kineto.lines.calls import calls_of, matched, sequence
from perfkit.readers.kineto.lines.pieces import LineStretches, filled, own_times
from perfkit.readers.kineto.lines.recomputed import originals
from perfkit.readers.kineto.lines.stacks import EventFrames, SourceFrame


@dataclass
class Traced:
    """A trace with what is known of its events' places."""

    host: HostEvents
    places: EventPlaces
    steps: Steps
    calls: Booleans = field(init=False)

    def __post_init__(self) -> None:
        self.calls = calls_of(self.host, self.places)


@dataclass
class Lined:
    """The lines of a trace: for each host event the frame whose work it is (`frame`: of a backward operator that of its
    forward one), the frame that called it (`caller`), and the `library` frame in between; −1 for unknown."""

    frames: list[SourceFrame]
    frame: Integers
    caller: Integers
    library: Integers
    pieces: LineStretches


def by_own_stacks(trace: Traced, stacks: EventFrames) -> Lined:
    """The lines of a trace that holds its stacks. Its steps' time outside of the user's frames has no line."""
    places = trace.places
    frame = _with_forward(trace, stacks.user, _inside_nodes(places, stacks))
    rows: list[tuple[int, int, int, bool]] = []
    for step, (start, end) in enumerate(zip(trace.steps.start.tolist(), trace.steps.end.tolist(), strict=True)):
        told = filled(_own_pieces(trace, stacks, step), start, end)
        rows += _cut(trace, told, step)
    return Lined(stacks.frames, frame, stacks.user, stacks.library, LineStretches.of(rows))


def by_other_step(trace: Traced, other: Traced, stacks: EventFrames) -> Lined:
    """The lines of a trace by the one step of the `other`, which holds `stacks`."""
    partner = np.full(len(trace.host), -1, np.int64)
    theirs = sequence(trace_calls := other.calls, other.host, other.places, other.steps, 0)
    names = _names(other.host, theirs)
    rows: list[tuple[int, int, int, bool]] = []
    pieces = _own_pieces(other, stacks, 0)
    alone = _unambiguous(other, np.flatnonzero(trace_calls), stacks)
    for step in range(len(trace.steps.start)):
        mine = sequence(trace.calls, trace.host, trace.places, trace.steps, step)
        found = matched(_names(trace.host, mine), names)
        partner[mine] = np.where(found >= 0, theirs[np.maximum(found, 0)] if len(theirs) else -1, -1)
        rows += _shared(trace, step, mine, partner[mine], other, pieces)
    for event in np.flatnonzero(trace.calls & (partner < 0)).tolist():
        partner[event] = alone.get(_key(trace, event), -1)
    said = partner[trace.host.nearest(trace.calls)] if len(trace.host) else partner
    said = np.where(trace.host.nearest(trace.calls) >= 0, said, -1)
    caller, library = _taken(stacks.user, said), _taken(stacks.library, said)
    inside = np.where(said >= 0, _inside_nodes(other.places, stacks)[np.maximum(said, 0)], False)
    again = trace.host.inherit(originals(trace.host, trace.places, trace.calls, trace.steps.lane))
    caller = np.where(again >= 0, _taken(caller, again), caller)
    library = np.where(again >= 0, _taken(library, again), library)
    frame = _with_forward(trace, caller, inside | ((again >= 0) & (caller >= 0)))
    of_call = LineStretches.of(rows)
    return Lined(stacks.frames, frame, caller, library, of_call)


def _taken(values: Integers, events: Integers) -> Integers:
    return np.where(events >= 0, values[np.maximum(events, 0)], -1)


def _names(host: HostEvents, events: Integers) -> list[str]:
    return [host.names[code] for code in host.name[events].tolist()]


def _inside_nodes(places: EventPlaces, stacks: EventFrames) -> Booleans:
    """Return whether the user's frame of each event is inside the autograd node around it: a hook, a function of its
    own."""
    inside: Booleans = (places.node >= 0) & (stacks.mark > places.node)
    return inside


def _with_forward(trace: Traced, caller: Integers, own_code: Booleans) -> Integers:
    """`caller`, but of events in a node of autograd the frame of the operator that made it, where that is known."""
    places = trace.places
    forward = np.where((places.node >= 0) & (places.operator >= 0) & ~own_code, places.operator, -1)
    outside = (forward >= 0) & (_taken(places.node, forward) != places.node)
    of_forward = np.where(outside, _taken(caller, forward), -1)
    return np.where(of_forward >= 0, of_forward, caller)


def _key(trace: Traced, event: int) -> tuple[str, int, str]:
    module = int(trace.places.module[event])
    return (
        trace.host.names[trace.host.name[event]],
        int(trace.places.node[event] >= 0),
        trace.places.module_names[module] if module >= 0 else "",
    )


def _unambiguous(other: Traced, calls: Integers, stacks: EventFrames) -> dict[tuple[str, int, str], int]:
    """Return an event of each kind of call, by name and module, where all such have the same line."""
    found: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    example: dict[tuple[str, int, str], int] = {}
    for event in calls.tolist():
        key = _key(other, event)
        found[key].add(int(stacks.user[event]))
        example[key] = event
    return {key: example[key] for key, lines in found.items() if len(lines) == 1}


def _own_pieces(trace: Traced, stacks: EventFrames, step: int) -> list[tuple[int, int, int]]:
    """Return what lines the step's thread went through, by the stacks of the trace itself: start, end, frame."""
    lane, start, end = trace.steps.lane, int(trace.steps.start[step]), int(trace.steps.end[step])
    chosen = stacks.is_mark if stacks.is_mark.any() else trace.calls & (trace.host.category == OPERATOR)
    pieces = own_times(trace.host, chosen, stacks.user, lane)
    return [(max(a, start), min(b, end), frame) for a, b, frame in pieces if b > start and a < end]


def _cut(trace: Traced, pieces: list[tuple[int, int, int]], step: int) -> list[tuple[int, int, int, bool]]:
    """The pieces cut where calls begin and end: whether one ran."""
    calls = sequence(trace.calls, trace.host, trace.places, trace.steps, step)
    edges = np.stack([trace.host.start[calls], trace.host.end[calls]], 1).reshape(-1)
    found = []
    for start, end, frame in pieces:
        low, high = np.searchsorted(edges, [start, end], side="right")
        bounds = [start, *edges[low:high].tolist(), end]
        for number, (a, b) in enumerate(pairwise(bounds)):
            if b > a:
                found.append((a, b, frame, bool((int(low) + number) % 2)))
    return found


def _shared(
    trace: Traced, step: int, calls: Integers, partner: Integers, other: Traced, pieces: list[tuple[int, int, int]]
) -> list[tuple[int, int, int, bool]]:
    """The time of a step by line: calls have that of their partner, and what lies between two calls is shared out as
    the other step went through lines between their partners."""
    starts = np.array([piece[0] for piece in pieces], np.int64)
    found: list[tuple[int, int, int, bool]] = []
    at, before = int(trace.steps.start[step]), int(other.steps.start[0]) if len(other.steps.start) else 0
    is_known = True  # whether the call before has a partner
    ends = other.host.end[np.maximum(partner, 0)].tolist()
    begins = other.host.start[np.maximum(partner, 0)].tolist()
    bounds = zip(trace.host.start[calls].tolist(), trace.host.end[calls].tolist(), partner.tolist(), strict=True)
    for i, (start, end, with_) in enumerate(bounds):
        until = begins[i] if with_ >= 0 else before
        found += _spread(at, start, pieces, starts, before if is_known else until, until)
        frame = _at(pieces, starts, until) if with_ >= 0 else -1
        found.append((start, end, frame, True))
        at, is_known = max(at, end), with_ >= 0
        before = ends[i] if with_ >= 0 else before
    last = int(other.steps.end[0]) if len(other.steps.end) else before
    found += _spread(at, int(trace.steps.end[step]), pieces, starts, before, last if is_known else before)
    return [one for one in found if one[1] > one[0]]


def _at(pieces: list[tuple[int, int, int]], starts: Integers, moment: int) -> int:
    """The line that the other step was in at a moment."""
    i = int(np.searchsorted(starts, moment, side="right")) - 1
    return pieces[i][2] if i >= 0 and moment < pieces[i][1] else -1


def _spread(
    start: int, end: int, pieces: list[tuple[int, int, int]], starts: Integers, low: int, high: int
) -> list[tuple[int, int, int, bool]]:
    """The stretch [start, end) shared out among the `pieces` in [low, high) of the other step, in their order."""
    if end <= start:
        return []
    first = max(0, int(np.searchsorted(starts, low, side="right")) - 1)
    inside = []
    for a, b, frame in pieces[first : int(np.searchsorted(starts, high))]:
        if (length := min(b, high) - max(a, low)) > 0:
            inside.append((length, frame))
    total = sum(length for length, _ in inside)
    if not total:
        return [(start, end, -1, False)]
    found, at, done = [], start, 0
    for length, frame in inside:
        done += length
        to = start + round((end - start) * done / total)
        found.append((at, to, frame, False))
        at = to
    return found
