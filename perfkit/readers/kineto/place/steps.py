"""The steps of a trace."""

from __future__ import annotations

import numpy as np

from perfkit.readers.intervals import Steps
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents
from perfkit.readers.own_ranges import STEP


def find_steps(events: HostEvents) -> Steps:
    """The step ranges; without any, the whole extent of the busiest thread counts as one step."""
    for prefix in (STEP, "ProfilerStep#"):
        found = np.flatnonzero(events.named([n.startswith(prefix) for n in events.names]))
        if len(found):
            lane = int(np.bincount(events.lane[found]).argmax())
            found = found[events.lane[found] == lane]
            names = tuple(events.names[code] for code in events.name[found].tolist())
            return Steps(events.start[found], events.end[found], lane, True, names)
    work = np.flatnonzero(events.category == OPERATOR)
    if not len(work):
        return Steps(np.empty(0, np.int64), np.empty(0, np.int64), 0, False)
    lane = int(np.bincount(events.lane[work]).argmax())
    work = work[events.lane[work] == lane]
    return Steps(events.start[work].min(keepdims=True), events.end[work].max(keepdims=True), lane, False)
