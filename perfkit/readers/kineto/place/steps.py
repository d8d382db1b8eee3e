"""The steps of a trace."""

from __future__ import annotations

import numpy as np

from perfkit.readers.intervals import Steps
from perfkit.readers.kineto.decode.events import OPERATOR, RUNTIME, DeviceEvents, HostEvents
from perfkit.readers.own_ranges import STEP


def find_steps(host: HostEvents, device: DeviceEvents) -> Steps:
    """The step ranges; without any, all that was recorded counts as one step."""
    for prefix in (STEP, "ProfilerStep#"):
        found = np.flatnonzero(host.named([n.startswith(prefix) for n in host.names]))
        if len(found):
            lane = int(np.bincount(host.lane[found]).argmax())
            found = found[host.lane[found] == lane]
            names = tuple(host.names[code] for code in host.name[found].tolist())
            return Steps(host.start[found], host.end[found], lane, True, names)
    return _whole(host, device)


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
