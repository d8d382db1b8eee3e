"""The steps of a trace: the host's marks, the profiler's marks on a GPU, or what else shows steps.

Without marks, optimizer steps and fetches of batches show them (`evident_steps`). `gpu_steps` has those of a GPU."""

from __future__ import annotations

import re

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.engines import iteration_of
from perfkit.intervals import Steps
from perfkit.numbers import unique
from perfkit.profile_names import LOADER, OPTIMIZER_STEP, PREFIX, PROFILER_STEP, STEP, step_of
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, PYTHON, RUNTIME, DeviceEvents, HostEvents


def find_steps(host: HostEvents, device: DeviceEvents, call: Integers) -> Steps:
    """The step ranges, else what else shows steps; without any, all that was recorded counts as one step.

    `call` is the host event that launched each activity, −1 for none.
    """
    marked = host.named([n.startswith(STEP) for n in host.names])
    if marked.any():
        return _called_as_served(_ranges(host, np.flatnonzero(marked)), _iterations(host))
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


def _called_as_served(steps: Steps, iterations: Steps | None) -> Steps:
    """The steps of perfkit's own marks, called as the engine calls the only iteration in each."""
    at = steps.at(iterations.start) if iterations is not None else np.empty(0, np.int64)
    if iterations is None or len(unique(at)) < len(at) or (at < 0).any():
        return steps
    names = list(steps.names)
    for step, name in zip(at.tolist(), iterations.names, strict=True):
        names[step] = name
    return Steps(steps.start, steps.end, steps.lane, True, tuple(names), steps.evidence)


def _named(host: HostEvents) -> Steps | None:
    """The steps that the program's own ranges are called, such as `step 3`; none is inside another."""
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
    """Return the steps of the host for the profiler's marks on the GPU: each from the first launch of what ran in
    it."""
    spans = marked_on_gpu(device, 0)
    if spans is None:
        return None
    known = np.flatnonzero(call >= 0)
    step = spans.at(device.start[known])
    known, step = known[step >= 0], step[step >= 0]
    if len(unique(step)) < len(spans.start):
        return spans
    start = np.full(len(spans.start), np.iinfo(np.int64).max)
    np.minimum.at(start, step, host.start[call[known]])
    lane = int(np.bincount(host.lane[call[known]]).argmax())
    end = np.append(start[1:], host.end[call[known]].max())
    if (end <= start).any():
        return spans
    return Steps(start, end, lane, True, spans.names, spans.evidence)


def _whole(host: HostEvents, device: DeviceEvents) -> Steps:
    """One step from the first operator, CUDA call or activity of a GPU to the last, on the thread whose operators lie
    furthest apart: the thread of the backward pass often has more of them than the one that it works for."""
    operators = np.flatnonzero(host.category == OPERATOR)
    calls = np.flatnonzero(host.category == RUNTIME)
    work = operators if len(operators) else calls
    if not len(work):
        return Steps(np.empty(0, np.int64), np.empty(0, np.int64), 0, False)
    lanes = unique(host.lane[work])
    spans = [int(np.ptp(host.start[work[host.lane[work] == lane]])) for lane in lanes]
    recorded = np.concatenate([operators, calls])
    start = np.concatenate([host.start[recorded], device.start]).min(keepdims=True)
    end = np.concatenate([host.end[recorded], device.end]).max(keepdims=True)
    return Steps(start, end, int(lanes[int(np.argmax(spans))]), False)


_NEXT_BATCH = re.compile(re.escape(LOADER) + r"#.*__next__$")
_NUMBER = re.compile(r"\d+")
_FEWEST = 2


def evident_steps(host: HostEvents) -> Steps | None:
    """The steps that the ranges show; None where they show none."""
    ranges = host.category == ANNOTATION
    optimizer = _outermost(host, ranges & host.named([n.startswith(OPTIMIZER_STEP) for n in host.names]))
    loader = _outermost(host, ranges & host.named([bool(_NEXT_BATCH.match(n)) for n in host.names]))
    either = optimizer if len(optimizer) else loader
    if len(either) < _FEWEST:
        return None
    lane = int(np.bincount(host.lane[either]).argmax())
    optimizer, loader = (found[host.lane[found] == lane] for found in (optimizer, loader))
    return _around(host, lane, optimizer) or _between(host, lane, optimizer, loader)


def _outermost(host: HostEvents, chosen: Booleans) -> Integers:
    """The `chosen` events that are outside of all of them."""
    around = np.where(host.parent >= 0, host.nearest(chosen)[host.parent], -1) if len(host) else host.parent
    return np.flatnonzero(chosen & (around < 0))


def _around(host: HostEvents, lane: int, optimizer: Integers) -> Steps | None:
    """Ranges of one name around the same number of optimizer steps each."""
    if len(optimizer) < _FEWEST:
        return None
    kinds: dict[str, list[int]] = {}
    around = {int(p) for event in optimizer.tolist() for p in _parents(host, event)}
    for event in sorted(around):
        if host.category[event] == ANNOTATION:
            kinds.setdefault(_NUMBER.sub("#", host.names[host.name[event]]), []).append(event)
    for kind, events in kinds.items():
        start, end = host.start[events], host.end[events]
        held = np.searchsorted(host.start[optimizer], end) - np.searchsorted(host.start[optimizer], start)
        if len(events) >= _FEWEST and held.min() == held.max() and held.sum() == len(optimizer):
            shown = host.names[host.name[events[0]]] if kind.count("#") == 0 else kind
            return _steps(start, end, lane, f"ranges {shown}, each around {_times(int(held[0]))}")
    return None


def _parents(host: HostEvents, event: int) -> list[int]:
    found, event = [], int(host.parent[event])
    while event >= 0:
        found.append(event)
        event = int(host.parent[event])
    return found


def _between(host: HostEvents, lane: int, optimizer: Integers, loader: Integers) -> Steps | None:
    """Steps from one call to the next."""
    stepped, fetched = host.start[optimizer], host.start[loader]
    last = int(host.end[(host.lane == lane) & (host.category != PYTHON)].max())
    if not len(fetched):
        first = int(host.start[(host.lane == lane) & (host.category != PYTHON)].min())
        done = host.end[optimizer]
        return _steps(np.append(first, done[:-1]), done, lane, "they go from one optimizer step to the next")
    following = np.searchsorted(stepped, np.append(fetched, last + 1))
    count = np.diff(following)  # optimizer steps from each call of the loader to the next
    if not len(stepped):
        works = _works(host, lane, fetched, last)
        begin = fetched if works[-1] else fetched[:-1]
        evidence = "they go from one call of the DataLoader to the next"
        return _steps(begin, _ends(begin, np.append(fetched[1:], last)), lane, evidence) if works[:-1].all() else None
    before = np.diff(np.searchsorted(fetched, stepped))  # calls of the loader between optimizer steps
    if len(before) and before.min() == before.max() and before[0] > 1:
        return _accumulated(lane, stepped, host.end[optimizer], fetched, int(before[0]))
    some = np.flatnonzero(count > 0)
    whole = some[:-1] if len(some) > 1 and count[some[-1]] < count[some[0]] else some
    if len(whole) < _FEWEST or count[whole].min() != count[whole].max():
        return None
    end = np.append(fetched[1:], last)[whole]
    evidence = f"each goes from one call of the DataLoader to the next, with {_times(int(count[whole[0]]))}"
    return _steps(fetched[whole], _ends(fetched[whole], end), lane, evidence)


def _accumulated(lane: int, stepped: Integers, done: Integers, fetched: Integers, each: int) -> Steps | None:
    """Steps of `each` calls of the loader and one optimizer step, which is `done` at the end."""
    first = np.searchsorted(fetched, stepped) - each  # the first call of each step
    before = np.append(0, np.searchsorted(fetched, stepped)[:-1])
    whole = first >= before
    evidence = f"each has {each} calls of the DataLoader and an optimizer step"
    return _steps(fetched[np.maximum(first, 0)][whole], done[whole], lane, evidence)


def _works(host: HostEvents, lane: int, fetched: Integers, last: int) -> Booleans:
    """Return whether an operator or runtime call begins after each call of the loader, before the next."""
    busy = np.isin(host.category, (OPERATOR, RUNTIME)) & (host.lane == lane)
    loading = host.nearest((host.category == ANNOTATION) & host.named([bool(_NEXT_BATCH.match(n)) for n in host.names]))
    moments = host.start[busy & (loading < 0)]
    return np.diff(np.searchsorted(moments, np.append(fetched, last + 1))) > 0


def _ends(begin: Integers, end: Integers) -> Integers:
    """The ends of steps, the last at most as long as the longest of the others: the loop is over by then."""
    end = end[: len(begin)].copy()
    if len(begin) > 1:
        end[-1] = min(int(end[-1]), int(begin[-1] + (end - begin)[:-1].max()))
    return end


def _times(count: int) -> str:
    return "one optimizer step" if count == 1 else f"{count} optimizer steps"


def _steps(start: Integers, end: Integers, lane: int, evidence: str) -> Steps | None:
    if len(start) < _FEWEST:
        return None
    return Steps(start, end, lane, True, tuple(map(str, range(len(start)))), evidence)
