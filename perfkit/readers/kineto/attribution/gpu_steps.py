"""The launch of each activity of a GPU, and the steps as the GPU ran them.

An activity belongs to the step that launched it. Where its launch is not in the trace, its correlation id shows when it
was launched, for these numbers grow from call to call; where they do not, the order on its stream does. What was
launched before the capture belongs to no step.

Where the host runs ahead, the GPU works at a step long after the host's mark of it. The GPU's step goes from its first
kernel to the first one of the next step, on the stream that works most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.engines import iteration_of
from perfkit.intervals import Steps
from perfkit.numbers import median, unique
from perfkit.readers.kineto.attribution.steps import marked_on_gpu
from perfkit.readers.kineto.decode.events import KERNEL, OPERATOR, RUNTIME, DeviceEvents, HostEvents

_BEHIND = 0.01  # of the GPU's time outside the step that launched it: from here on the host runs ahead
_ROUNDING = 2_000  # ns: whole µs, and what two clocks are apart
_DISORDER = 0.05  # of the calls may have a smaller id than one before: several threads call at once
_PAUSE = 0.1  # of a step between two marks: these are not consecutive steps
_ENGINE_PAUSE = 1.0  # the same of a serving engine, which schedules and samples between its iterations


@dataclass(frozen=True)
class GpuSteps:
    """`step` of each activity (−1: none); `steps`, from when to when the GPU worked at each: the host's marks where it
    keeps up with them; `before` marks what was launched before the capture; `outside` is the share of the time of
    launched activities that lies outside of their step's mark."""

    step: Integers
    steps: Steps
    before: Booleans
    outside: float = 0.0

    @property
    def behind(self) -> bool:
        """Return whether the GPU's steps are others than the host's marks."""
        return self.outside > _BEHIND


def find_gpu_steps(
    host: HostEvents, device: DeviceEvents, steps: Steps, call: Integers, of_event: Integers
) -> GpuSteps:
    """Find them. `call` is the host event that launched each activity (−1: none), `of_event` the step of each event."""
    before = np.zeros(len(device), bool)
    if not len(steps.start) or not len(host):
        return GpuSteps(steps.at(device.start), steps, before)
    launched = call >= 0
    step = np.where(launched, of_event[np.maximum(call, 0)], -1)
    if not steps.marked:
        return GpuSteps(np.where(launched, step, steps.at(device.start)), steps, before)
    if not (step >= 0).any():  # of a trace that records no launches
        spans = marked_on_gpu(device, steps.lane) or steps
        outside = 1.0 if spans is not steps else 0.0
        return GpuSteps(np.where(launched, step, spans.at(device.start)), spans, before, outside)
    spans = _spans(device, steps, step, np.where(launched, host.start[np.maximum(call, 0)], -1))
    unknown = np.flatnonzero(~launched)
    if len(unknown):
        step[unknown], before[unknown] = _unlaunched(host, device, steps, spans, step, launched, unknown)
    known = launched & (step >= 0)
    outside = _outside(device, steps, step, known)
    return GpuSteps(step, spans if outside > _BEHIND else steps, before, outside)


def _outside(device: DeviceEvents, steps: Steps, step: Integers, known: Booleans) -> float:
    """The share of the time of `known` activities that ran outside of the mark of their step."""
    start, end, of = device.start[known], device.end[known], step[known]
    out = (start < steps.start[of] - _ROUNDING) | (end > steps.end[of] + _ROUNDING)
    time = (end - start).astype(float)
    return float(time[out].sum() / max(time.sum(), 1.0))


def _spans(device: DeviceEvents, steps: Steps, step: Integers, issued: Integers) -> Steps:
    """From when to when the GPU worked at each step; `issued`, when each activity was launched (−1: unknown)."""
    count = len(steps.start)
    stream = queues(device)
    kernel = device.kind == KERNEL
    mine = step >= 0
    time = np.bincount(stream[mine], weights=(device.end - device.start + 1)[mine] * (1 + 1e6 * kernel[mine]))
    main = stream == int(np.argmax(time))
    begin = np.full(count, -1, np.int64)
    for chosen in (main & kernel & mine, kernel & mine, mine):
        first = _first(device.start[chosen], step[chosen], count)
        begin = np.where(begin < 0, first, begin)
    done = np.zeros(count, np.int64)  # when all that a step and those before it launched had ended
    np.maximum.at(done, step[mine], device.end[mine])
    done = np.maximum(np.maximum.accumulate(done), steps.end)
    for i in np.flatnonzero(begin < 0).tolist():  # it launched nothing: it begins when it could have worked
        begin[i] = max(int(steps.start[i]), int(done[i - 1]) if i else 0)
    begin = np.minimum.accumulate(begin[::-1])[::-1]
    other = np.sort(device.start[main & (issued >= 0) & ~mine])
    end = np.append(begin[1:], done[-1])
    length = median(steps.end - steps.start)
    pause = _ENGINE_PAUSE if steps.names and iteration_of(steps.names[0]) else _PAUSE
    apart = np.append(steps.start[1:] - steps.end[:-1] > pause * length, True)
    end = np.where(apart, np.minimum(end, done), end)
    end[-1] = done[-1]
    following = np.searchsorted(other, begin)
    between = np.append(other, np.iinfo(np.int64).max)[following]
    return Steps(begin, np.minimum(end, between), steps.lane, True, steps.names, steps.evidence)


def _first(start: Integers, step: Integers, count: int) -> Integers:
    """The first start of each step, −1 for none."""
    found = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(found, step, start)
    return np.where(found == np.iinfo(np.int64).max, -1, found)


def queues(device: DeviceEvents) -> Integers:
    """Return the number of each activity's stream, a small one for each stream of a device."""
    pair = device.device.astype(np.int64) * (int(device.stream.max()) + 2) + device.stream
    return np.unique(pair, return_inverse=True)[1]


def _unlaunched(
    host: HostEvents, device: DeviceEvents, steps: Steps, spans: Steps, step: Integers, launched: Booleans,
    unknown: Integers,
) -> tuple[Integers, Booleans]:  # fmt: skip
    """Step of each activity whose launch is not in the trace (−1: none), and which were launched before the capture.

    Where several steps can have launched it, the last of them counts.
    """
    begun = np.searchsorted(steps.start, device.start[unknown], side="right") - 1
    found = np.where(begun < 0, -1, spans.at(device.start[unknown]))
    before = device.start[unknown] < min(int(spans.start[0]), int(host.start.min()))
    calls = np.flatnonzero((host.category == RUNTIME) & (host.correlation > 0))
    calls = calls[np.argsort(host.start[calls], kind="stable")]
    ids = np.maximum.accumulate(host.correlation[calls])
    grows = len(calls) > 1 and (host.correlation[calls] < ids).mean() <= _DISORDER
    numbered = device.correlation[unknown] > 0 if grows else np.zeros(len(unknown), bool)
    if numbered.any():
        following = np.searchsorted(ids, device.correlation[unknown[numbered]])
        of_call = np.concatenate([[-1], steps.at(host.start[calls]), [-1]])
        found[numbered] = _between(of_call[following], of_call[following + 1], begun[numbered])
        before[numbered] = following == 0
    stream = queues(device)
    for value in unique(stream[unknown[~numbered]]).tolist():
        own = np.flatnonzero((stream == value) & launched)
        here = np.flatnonzero((stream[unknown] == value) & ~numbered)
        following = np.searchsorted(device.start[own], device.start[unknown[here]])
        of_own = np.concatenate([[-1], step[own], [-1]])
        at = _between(of_own[following], of_own[following + 1], begun[here])
        found[here] = np.where(following > 0, at, found[here])
        before[here] |= (following == 0) & (len(own) > 0) & (device.start[unknown[here]] < spans.start[0])
    return np.where(before, -1, found), before


def _between(before: Integers, after: Integers, begun: Integers) -> Integers:
    """The step of what was launched between two launches of known steps (−1: none); `begun` is the last step that had
    begun when it ran."""
    return np.where(after < 0, before, np.maximum(np.minimum(after, begun), before))


_REPLAY = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")


@dataclass
class Launches:
    """For each activity the runtime or driver call that launched it (−1: none in the trace) and the innermost operator
    around that call; `replayed` marks what a CUDA graph's launch started."""

    call: Integers
    operator: Integers
    replayed: Booleans

    @property
    def around(self) -> Integers:
        """Return for each activity the host event of its place: the operator, else the call; −1 for none."""
        return np.where(self.operator >= 0, self.operator, self.call)


def find_launches(host: HostEvents, device: DeviceEvents) -> Launches:
    """Find out who launched what."""
    call = _calls(host, device)
    if not len(host):
        return Launches(call, call.copy(), np.zeros(len(call), bool))
    operator = np.where(call >= 0, host.nearest(host.category == OPERATOR)[np.maximum(call, 0)], -1)
    replay = host.named([n.startswith(_REPLAY) for n in host.names])
    return Launches(call, operator, (call >= 0) & replay[np.maximum(call, 0)])


def _calls(host: HostEvents, device: DeviceEvents) -> Integers:
    """The runtime or driver call that launched each activity, or −1."""
    calls = np.flatnonzero((host.category == RUNTIME) & (host.correlation >= 0))
    if not len(calls):
        return np.full(len(device), -1, np.int64)
    calls = calls[np.argsort(host.correlation[calls], kind="stable")]
    ids = host.correlation[calls]
    at = np.searchsorted(ids, device.correlation, side="right") - 1
    hit = (at >= 0) & (ids[np.maximum(at, 0)] == device.correlation)
    return np.where(hit, calls[np.maximum(at, 0)], -1)
