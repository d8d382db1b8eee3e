"""The steps of a trace, as the host marks them; `gpu_steps` has those of a GPU."""

from __future__ import annotations

import numpy as np

from perfkit.engines import iteration_of
from perfkit.profile_names import PREFIX, PROFILER_STEP, STEP, step_of
from perfkit.readers.columns import Integers
from perfkit.readers.intervals import Steps
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, RUNTIME, DeviceEvents, HostEvents
from perfkit.readers.kineto.place.evident import evident_steps


def find_steps(host: HostEvents, device: DeviceEvents, call: Integers) -> Steps:
    """The step ranges, else what else shows steps; without any, all that was recorded counts as one step.

    `call` is the host event that launched each activity, −1 for none.
    """
    marked = host.named([n.startswith(STEP) for n in host.names])
    if marked.any():
        return _ranges(host, np.flatnonzero(marked))
    if iterations := _iterations(host):
        return iterations
    marked = host.named([n.startswith(PROFILER_STEP) for n in host.names])
    if marked.any():
        return _ranges(host, np.flatnonzero(marked))
    if any(n.startswith(PREFIX) for n in (*host.names, *device.names)):  # a trace of perfkit's own that lacks them
        return _whole(host, device)
    return _launching(host, device, call) or _named(host) or evident_steps(host) or _whole(host, device)


def _ranges(host: HostEvents, found: Integers) -> Steps:
    """The ranges `found` as steps, those of the thread that has most of them."""
    lane = int(np.bincount(host.lane[found]).argmax())
    found = found[host.lane[found] == lane]
    names = tuple(host.names[code] for code in host.name[found].tolist())
    return Steps(host.start[found], host.end[found], lane, True, names)


def _iterations(host: HostEvents) -> Steps | None:
    """The iterations of a serving engine; of ranges in each other the outermost, by the name that says most."""
    served = [iteration_of(n) for n in host.names]
    ranges = (host.category == ANNOTATION) & host.named([one is not None for one in served])
    if not ranges.any():
        return None
    inside = np.where(host.parent >= 0, host.nearest(ranges)[host.parent], -1)
    outermost = np.flatnonzero(ranges & (inside < 0))
    steps = _ranges(host, outermost)
    names = list(steps.names)
    for event in np.flatnonzero(ranges & (inside >= 0) & (host.lane == steps.lane)).tolist():
        at = int(steps.at(host.start[event : event + 1])[0])
        own, outer = served[host.name[event]], iteration_of(names[at])
        if own and outer and own.details > outer.details:
            names[at] = host.names[host.name[event]]
    return Steps(steps.start, steps.end, steps.lane, True, tuple(names))


def _named(host: HostEvents) -> Steps | None:
    """The steps that the program's own ranges are called, such as `step 3`; none lies in another."""
    ranges = (host.category == ANNOTATION) & host.named([step_of(n) is not None for n in host.names])
    around = np.where(host.parent >= 0, host.nearest(ranges)[host.parent], -1) if len(host) else host.parent
    found = np.flatnonzero(ranges & (around < 0))
    steps = _ranges(host, found) if len(found) > 1 else None
    return steps if steps is not None and len(steps.start) > 1 else None


def marked_on_gpu(device: DeviceEvents, lane: int) -> Steps | None:
    """The steps from the profiler's marks on the GPU: each goes to the begin of the next, on the stream that they are
    open on for longest."""
    marks = device.marks
    mine = np.flatnonzero(np.array([*(n.startswith(PROFILER_STEP) for n in device.names), False])[marks.name])
    if not len(mine):
        return None
    stream = np.unique(np.column_stack([marks.device[mine], marks.stream[mine]]), axis=0, return_inverse=True)[1]
    stream = stream.reshape(-1)
    time = np.bincount(stream, weights=(marks.end - marks.start)[mine])
    mine = mine[stream == int(np.argmax(time))]
    mine = mine[np.argsort(marks.start[mine], kind="stable")]
    start = marks.start[mine]
    names = tuple(device.names[code] for code in marks.name[mine].tolist())
    end = np.append(start[1:], marks.end[mine].max())
    return Steps(start, end, lane, True, names, "the marks of the profiler on the GPU show them")


def _launching(host: HostEvents, device: DeviceEvents, call: Integers) -> Steps | None:
    """The steps of the host behind the profiler's marks on the GPU: each from the first launch of what ran in it."""
    spans = marked_on_gpu(device, 0)
    if spans is None:
        return None
    known = np.flatnonzero(call >= 0)
    step = spans.at(device.start[known])
    known, step = known[step >= 0], step[step >= 0]
    if len(np.unique(step)) < len(spans.start):
        return spans
    start = np.full(len(spans.start), np.iinfo(np.int64).max)
    np.minimum.at(start, step, host.start[call[known]])
    lane = int(np.bincount(host.lane[call[known]]).argmax())
    end = np.append(start[1:], host.end[call[known]].max())
    if (end <= start).any():
        return spans
    return Steps(start, end, lane, True, spans.names, spans.told)


def _whole(host: HostEvents, device: DeviceEvents) -> Steps:
    """One step from the first operator, CUDA call or activity of a GPU to the last, on the thread whose operators lie
    furthest apart: the thread of the backward pass often has more of them than the one that it works for."""
    operators = np.flatnonzero(host.category == OPERATOR)
    calls = np.flatnonzero(host.category == RUNTIME)
    work = operators if len(operators) else calls
    if not len(work):
        return Steps(np.empty(0, np.int64), np.empty(0, np.int64), 0, False)
    lanes = np.unique(host.lane[work])
    spans = [int(np.ptp(host.start[work[host.lane[work] == lane]])) for lane in lanes]
    recorded = np.concatenate([operators, calls])
    start = np.concatenate([host.start[recorded], device.start]).min(keepdims=True)
    end = np.concatenate([host.end[recorded], device.end]).max(keepdims=True)
    return Steps(start, end, int(lanes[int(np.argmax(spans))]), False)
