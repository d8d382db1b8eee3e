"""Collectives that threads of a library (gloo, MPI, UCC) carry out on CPUs: which, when, and what they send."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.profile_names import CPU_COLLECTIVES
from perfkit.readers.intervals import Steps
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.collectives import message_bytes, message_of_range


def facts(host: HostEvents, steps: Steps, group: dict[str, Any] | None) -> dict[str, Any]:
    """The fact `cpu_collectives`: a record of each, in the order of their starts; no fact without any.

    `start_ns` and `duration_ns` are of the range that the library's thread opens around it. One that begins in a step
    ends with it at the latest: the thread tells the step that it is done, and may lose its core before it closes the
    range. `step` is −1 outside the steps, `message_bytes` absent where the trace has no shapes. `group` is the only one
    that they can be of (None: not known).
    """
    found = np.flatnonzero(host.named([n.startswith(CPU_COLLECTIVES) for n in host.names]))
    if not len(found):
        return {}
    found = found[np.argsort(host.start[found], kind="stable")]
    step = steps.at(host.start[found])
    inside = step >= 0
    end = host.end[found].copy()
    end[inside] = np.minimum(end[inside], steps.end[step[inside]])
    return {"cpu_collectives": [_one(host, group, *map(int, each)) for each in zip(found, step, end, strict=True)]}


def _one(host: HostEvents, group: dict[str, Any] | None, event: int, step: int, end: int) -> dict[str, Any]:
    message = message_of_range(host, int(host.name[event]), int(host.call[event]))
    size = message_bytes(message)
    if message.collective == "all_gather":  # the range has what a rank puts in, a message is what it gets out
        size = size * len(group["ranks"]) if size is not None and group else None
    return {
        "name": host.names[host.name[event]][:80],
        "collective": message.collective,
        "start_ns": int(host.start[event]),
        "duration_ns": end - int(host.start[event]),
        "step": step,
        **({} if size is None else {"message_bytes": size}),
        **({"dtype": message.dtype} if message.dtype else {}),
        **({"group": f"{group['description'] or group['name']} {group['ranks']}".strip()} if group else {}),
    }
