"""Why the GPU was idle: every idle stretch inside the steps, cut into pieces with a cause each.

A stretch ends with an activity. Until the call that launched it returned, the host was not ready: the thread that held
the launch up (`threads`) gives the cause. From there on the work was on its way ("latency"). Where the call had
returned before the GPU fell idle, the host is not to blame: the GPU went from one piece of queued work to the next
("queued"), or to one that waited for another stream ("stream wait"). The pieces of a stretch add up to it by
construction. docs/numbers.md defines each cause.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.intervals import Steps, Union, stretches
from perfkit.numbers import unique
from perfkit.profile_names import LOADER
from perfkit.readers.kineto.attribution.gpu_steps import GpuSteps
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, DeviceEvents, HostEvents
from perfkit.readers.kineto.measure.gaps import StepGaps, by_cause, long_gaps, with_profiler
from perfkit.readers.kineto.measure.gpu import at_work
from perfkit.readers.kineto.measure.rows import (
    AUTOGRAD,
    CAUSES,
    DATA,
    DISPATCH,
    DRIVER,
    EARLIER,
    LATENCY,
    LAUNCH,
    OTHER,
    PROFILER,
    PYTHON_CODE,
    QUEUED,
    RANK,
    STREAM_WAIT,
    HostRows,
)
from perfkit.readers.kineto.measure.threads import Blockers, Spans, TraceThreads

LONG_CALL_NS = 1e6  # an operator that knows its kernel launches within tens of µs
_HELD = 5  # operators that are listed
_OF_THE_GPU = (LATENCY, QUEUED, STREAM_WAIT)


@dataclass
class _Stretches:
    """Idle stretches [start, end) and what ended each.

    `lane` is the thread that was to launch it (−1: a trace without a host), `call` the call that did (−1: not in the
    trace), and `issued` when that had returned, within the stretch; `queued` is the cause where it had returned before,
    else −1.
    """

    start: Integers
    end: Integers
    lane: Integers
    call: Integers
    issued: Integers
    queued: Integers


@dataclass
class _Pieces:
    """Parts of stretches: which `stretch`, its `cause`, ns, and the host event that has its pass (−1: none);
    `recorded`, how many events the profiler recorded in it on the thread that held the launch up."""

    stretch: Integers
    cause: Integers
    ns: Integers
    event: Integers
    recorded: Integers


def account(
    host: HostEvents,
    device: DeviceEvents,
    steps: Steps,
    on_gpu: GpuSteps,
    place: EventPlaces,
    rows: HostRows,
    launch: Integers,
    event_cost_ns: float | None,
) -> StepGaps:
    """Account for every step of a trace with GPU work: busy is the union of all activities, a gap is idle time, and
    what the GPU did for work that was launched before the capture, whether the trace holds it or lacks it.

    `on_gpu` has the steps as the GPU ran them, `steps` are those of the host. `launch` is the host event that launched
    each activity, −1 for none; `event_cost_ns` what recording one event costs (None: no estimate of that), which is
    taken out of what the host held up.
    """
    spans = on_gpu.steps
    cover = at_work(host, device, launch)
    own = Union(device.start[~on_gpu.before], device.end[~on_gpu.before])
    step_ns = spans.end - spans.start
    busy, active = (one.until(spans.end) - one.until(spans.start) for one in (own, cover))
    found = _pieces(host, device, steps, spans, place, rows, launch, cover)
    recorded = int(found.recorded.sum())
    pass_ = np.where(found.event >= 0, place.pass_[found.event], -1) if len(host) else found.event
    gaps = by_cause(found.cause, pass_, found.ns, place.pass_names, found.stretch)
    if earlier := int((active - busy).sum()):
        count = int(((active - busy) > 0).sum())
        gaps.append({"cause": CAUSES[EARLIER], "pass": None, "ns": earlier, "count": count})
    theirs = {CAUSES[cause] for cause in (*_OF_THE_GPU, EARLIER, OTHER, PROFILER)}
    gaps = with_profiler(gaps, recorded * (event_cost_ns or 0.0), theirs)
    gaps.sort(key=lambda g: -g["ns"])
    events = int(np.count_nonzero((place.step >= 0) & (host.lane == steps.lane)))
    held_by = _held_by(host, found, launch, len(step_ns))
    longest = long_gaps(host, found.stretch, found.cause, found.ns, found.event, float(step_ns.sum()))
    return StepGaps(step_ns.tolist(), busy.tolist(), gaps, events, recorded, held_by, longest)


def _held_by(host: HostEvents, found: _Pieces, launch: Integers, steps: int) -> list[dict[str, Any]]:
    """Operators that held the GPU up for long in as many calls as there are `steps`, or in more: the idle ns in these
    calls, by their own time, their number, the longest, and how many activities they launched (`launches`; none: they
    work on the host). The most time first. A call that is long but once met something else: a busy machine, a
    collection of garbage."""
    inside = host.nearest(host.category == OPERATOR) if len(host) else np.zeros(0, np.int64)
    mine = np.flatnonzero(np.isin(found.cause, (DISPATCH, DRIVER)) & (found.event >= 0))
    operator = inside[found.event[mine]]
    calls, which = np.unique(operator[operator >= 0], return_inverse=True)
    ns = np.bincount(which, weights=found.ns[mine][operator >= 0], minlength=len(calls)).astype(np.int64)
    launches = _launches(host, launch)
    by_name: dict[tuple[str, bool], list[tuple[int, int]]] = {}
    for call, took in zip(calls.tolist(), ns.tolist(), strict=True):
        if took >= LONG_CALL_NS:
            name, launched = host.names[host.name[call]], int(launches[call])
            by_name.setdefault((name, launched > 0), []).append((took, launched))
    held: list[dict[str, Any]] = [
        {
            "operator": name,
            "launches": sum(launched for _, launched in each),
            "ns": sum(took for took, _ in each),
            "count": len(each),
            "longest_ns": max(took for took, _ in each),
        }
        for (name, _), each in by_name.items()
        if len(each) >= steps
    ]
    return sorted(held, key=lambda one: -one["ns"])[:_HELD]


def _launches(host: HostEvents, launch: Integers) -> Integers:
    """Return how many activities were launched inside each host event."""
    found = np.zeros(len(host), np.int64)
    around = launch[launch >= 0]
    while len(around):
        np.add.at(found, around, 1)
        around = host.parent[around]
        around = around[around >= 0]
    return found


def _pieces(
    host: HostEvents, device: DeviceEvents, steps: Steps, spans: Steps, place: EventPlaces, rows: HostRows,
    launch: Integers,
    cover: Union,
) -> _Pieces:  # fmt: skip
    found = _ended(host, device, steps, launch, *stretches(cover, spans))
    count = len(found.start)
    waited = found.queued >= 0
    pieces = [
        _whole(found, waited, found.start, found.queued),
        _whole(found, (found.lane >= 0) & ~waited, found.issued, np.full(count, LATENCY)),
        _whole(found, found.lane < 0, found.start, np.full(count, OTHER)),
    ]
    late = np.flatnonzero((found.lane >= 0) & ~waited & (found.issued > found.start))
    if len(late):
        threads = TraceThreads(host, place, steps, Spans(found.start[late], found.issued[late]))
        causes = _causes(host, rows)
        for lane in unique(found.lane[late]).tolist():
            pieces.append(_of_host(host, threads.holding_up(lane), causes, found, late[found.lane[late] == lane]))
    return _Pieces(*(np.concatenate([getattr(p, f.name) for p in pieces]) for f in fields(_Pieces)))


def _ended(
    host: HostEvents,
    device: DeviceEvents,
    steps: Steps,
    launch: Integers,
    start: Integers,
    end: Integers,
    began: Integers,
) -> _Stretches:
    """Return what ended each stretch; the last of a step ends with what starts after the step.

    Where nothing does, or its launch is not in the trace, the thread of the steps is asked.
    """
    following = np.searchsorted(device.start, end, side="left")
    at = np.minimum(following, len(device) - 1)
    call = np.where(following == len(device), -1, launch[at])
    if not len(host):
        return _Stretches(start, end, np.full(len(start), -1), call, end, call)
    lane = np.where(call >= 0, host.lane[call], steps.lane)
    returned = np.where(call >= 0, host.end[call], end)
    other_stream = _before_on_stream(device)[at] < began
    queued = np.where(returned > began, -1, np.where(other_stream, STREAM_WAIT, QUEUED))
    return _Stretches(start, end, lane, call, np.clip(returned, start, end), queued)


def _before_on_stream(device: DeviceEvents) -> Integers:
    """When all earlier activities on the stream of each activity had ended; long ago without any."""
    before = np.full(len(device), np.iinfo(np.int64).min)
    pair = device.device.astype(np.int64) * (int(device.stream.max()) + 2) + device.stream
    for value in unique(pair).tolist():
        mine = np.flatnonzero(pair == value)
        before[mine[1:]] = np.maximum.accumulate(device.end[mine])[:-1]
    return before


def _whole(found: _Stretches, chosen: Booleans, since: Integers, cause: Integers) -> _Pieces:
    """The rest of each chosen stretch from `since` on as one piece."""
    at = np.flatnonzero(chosen & (found.end > since))
    return _Pieces(at, cause[at], (found.end - since)[at], found.call[at], np.zeros(len(at), np.int64))


def _causes(host: HostEvents, rows: HostRows) -> Integers:
    """The cause of each host event's own time; whatever happens in a data loader is loading."""
    causes = rows.cause.copy()
    loading = (host.category == ANNOTATION) & host.named([n.startswith(LOADER) for n in host.names])
    causes[host.nearest(loading) >= 0] = DATA
    return causes


def _of_host(host: HostEvents, held: Blockers, causes: Integers, found: _Stretches, late: Integers) -> _Pieces:
    """The pieces of the stretches `late` until their launching calls had returned."""
    start, issued = found.start[late], found.issued[late]
    which, at = _cut(held.moments, start, issued)
    begin = np.maximum(held.moments[at], start[which])
    ns = np.minimum(held.moments[at + 1], issued[which]) - begin
    event, between = held.event[at], held.between[at]
    cause = np.where(event >= 0, causes[event], OTHER)
    # With nothing open but the step, a thread that the trace shows runs the program.
    cause = np.where((cause == OTHER) & held.seen[at], PYTHON_CODE, cause)
    cause = np.where(between >= 0, AUTOGRAD, cause)
    cause = np.where(held.rank[at], RANK, cause)
    cause = np.where((event >= 0) & (event == found.call[late][which]), LAUNCH, cause)
    cause = np.where(held.recording[at], PROFILER, cause)
    blamed = np.where(between >= 0, between, event)
    return _Pieces(late[which], cause, ns, blamed, _begun(host, held.lane[at], begin, begin + ns))


def _begun(host: HostEvents, lane: Integers, start: Integers, end: Integers) -> Integers:
    """Return how many events of a thread begin inside each interval [start, end)."""
    count = np.zeros(len(lane), np.int64)
    for value in unique(lane).tolist():
        low, high = np.searchsorted(host.lane, [value, value + 1])
        mine, starts = lane == value, host.start[low:high]
        count[mine] = np.searchsorted(starts, end[mine]) - np.searchsorted(starts, start[mine])
    return count


def _cut(moments: Integers, start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Each stretch [start, end) cut at the `moments` inside it, its own start and end among them: the stretch of each
    piece, and the moment from which to the next it lies."""
    first = np.maximum(np.searchsorted(moments, start, side="right") - 1, 0)
    count = np.maximum(np.minimum(np.searchsorted(moments, end), len(moments) - 1) - first, 0)
    stretch = np.repeat(np.arange(len(start)), count)
    return stretch, np.arange(len(stretch)) + np.repeat(first - np.cumsum(count) + count, count)
