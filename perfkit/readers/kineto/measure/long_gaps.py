"""Single long gaps of a GPU, by the name of what the host was in meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.profile_names import MODULE, PREFIX, PROFILER_STEP
from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.rows import CAUSES

_LONG = 0.1  # of all steps
_MOST = 3
_COVERS = 0.8  # of a gap: so long is the event that names it


def long_gaps(
    host: HostEvents, stretch: Integers, cause: Integers, ns: Integers, event: Integers, steps_ns: float
) -> list[dict[str, Any]]:
    """Gaps of a tenth of the steps or more, the longest first, from their pieces: `ns`, `name` (of the innermost event
    that covers most of it; "" where none but the step does) and `cause`, which has most of it."""
    total = np.bincount(stretch, weights=ns) if len(stretch) else np.zeros(0)
    chosen = np.flatnonzero((total > 0) & (total >= _LONG * steps_ns))
    found = []
    for gap in chosen[np.argsort(-total[chosen], kind="stable")][:_MOST].tolist():
        mine = np.flatnonzero(stretch == gap)
        by_cause = np.bincount(cause[mine], weights=ns[mine])
        largest = mine[int(np.argmax(ns[mine]))]
        name = _covering(host, int(event[largest]), float(total[gap]))
        found.append({"ns": int(total[gap]), "name": name, "cause": CAUSES[int(by_cause.argmax())]})
    return found


def _covering(host: HostEvents, event: int, ns: float) -> str:
    """The name of the innermost event around `event` that lasts for most of `ns`."""
    while event >= 0 and host.end[event] - host.start[event] < _COVERS * ns:
        event = int(host.parent[event])
    name = host.names[host.name[event]] if event >= 0 else ""
    if name.startswith(MODULE):
        return f"the module {name.removeprefix(MODULE)}"
    return "" if name.startswith((PROFILER_STEP, PREFIX)) else name
