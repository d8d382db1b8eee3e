"""Facts of a trace with GPU work by name: ranges with their kernels, copies, calls, collectives.

Times are whole ns over the capture; overlap is that of unions of intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.intervals import Union
from perfkit.numbers import numbered, unique
from perfkit.profile_names import GRAPH, LINE, MODULE, PASS, PROFILER_STEP, STEP
from perfkit.readers.kineto.decode.events import (
    ANNOTATION,
    COPY,
    KERNEL,
    RUNTIME,
    DeviceEvents,
    HostEvents,
    Message,
)
from perfkit.readers.kineto.measure.collectives import message_bytes

MOST = 500  # names of ranges, calls, messages
LONGEST_NAME = 200
_DIRECTIONS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")


def cover_of(device: DeviceEvents, chosen: Booleans) -> Union:
    """The time in which one of the `chosen` events ran."""
    return Union(device.start[chosen], device.end[chosen])


def inside(cover: Union, start: Integers, end: Integers) -> Integers:
    """Return how much of [start, end) is covered, ns."""
    return cover.until(end) - cover.until(start)


def length_of(device: DeviceEvents) -> Integers:
    """Duration of each event, ns."""
    return device.end - device.start


def ranges(host: HostEvents, device: DeviceEvents, launch: Integers) -> list[dict[str, Any]]:
    """Per name of annotation: how often it was open, its host time, and the kernels launched inside with their time.

    A kernel counts once for a name, however often ranges of that name nest.
    """
    if not len(host):
        return []
    shown = [not n.startswith((STEP, PROFILER_STEP, PASS, MODULE, LINE, GRAPH)) for n in host.names]
    own = (host.category == ANNOTATION) & host.named(shown)
    nearest = host.nearest(own)
    index = np.flatnonzero(own)
    host_ns = np.bincount(host.name[index], weights=(host.end - host.start)[index], minlength=len(host.names))
    count = np.bincount(host.name[index], minlength=len(host.names))
    total = {int(n): [0, 0] for n in np.flatnonzero(count)}
    mine = np.flatnonzero((launch >= 0) & (device.kind == KERNEL))
    around, inverse = numbered(nearest[launch[mine]])
    kernels = np.bincount(inverse, minlength=len(around)).tolist()
    kernel_ns = np.bincount(inverse, weights=length_of(device)[mine], minlength=len(around)).tolist()
    for event, number, ns in zip(around.tolist(), kernels, kernel_ns, strict=True):
        names = set()
        while event >= 0:
            names.add(int(host.name[event]))
            parent = int(host.parent[event])
            event = int(nearest[parent]) if parent >= 0 else -1
        for name in names:
            total[name][0] += number
            total[name][1] += int(ns)
    entries: list[dict[str, Any]] = [
        {
            "name": host.names[n][:LONGEST_NAME],
            "count": int(count[n]),
            "host_ns": int(host_ns[n]),
            "kernels": number,
            "kernel_ns": ns,
        }
        for n, (number, ns) in total.items()
    ]
    return sorted(entries, key=lambda e: (-e["kernel_ns"], -e["host_ns"], e["name"]))[:MOST]


def copies(device: DeviceEvents, covered: Integers) -> list[dict[str, Any]]:
    """Copies by direction and kind of memory, the longest first: count, bytes (None where unknown), time, and how much
    of that computing kernels `covered`."""
    result: list[dict[str, Any]] = []
    copy = device.kind == COPY
    time = length_of(device)
    for name in unique(device.name[copy]).tolist():
        mine = copy & (device.name == name)
        amount = device.amount[mine]
        text = device.names[name][:LONGEST_NAME]
        result.append(
            {
                "name": text,
                "direction": next((d for d in _DIRECTIONS if d in text), "unknown"),
                "count": int(mine.sum()),
                "bytes": int(amount.sum()) if (amount >= 0).all() else None,
                "ns": int(time[mine].sum()),
                "overlapped_ns": int(covered[mine].sum()),
            }
        )
    return sorted(result, key=lambda entry: -entry["ns"])


def calls_of(host: HostEvents) -> list[tuple[str, int, int]]:
    """CUDA or HIP calls by name with their count and time on the host, the longest first."""
    mine = np.flatnonzero(host.category == RUNTIME)
    name = host.name[mine]
    count = np.bincount(name, minlength=len(host.names))
    time = np.bincount(name, weights=host.end[mine] - host.start[mine], minlength=len(host.names))
    found = [(host.names[n], int(count[n]), int(time[n])) for n in np.flatnonzero(count).tolist()]
    return sorted(found, key=lambda call: -call[2])


def entries(key: str, calls: Sequence[tuple[str, int, int]]) -> list[dict[str, Any]]:
    """(name, count, ns) as records of the table's facts, the first `MOST` of them."""
    return [{key: name[:LONGEST_NAME], "count": count, "ns": ns} for name, count, ns in calls[:MOST]]


def communication(
    device: DeviceEvents, messages: Sequence[tuple[Message, Integers]], covered: Integers
) -> list[dict[str, Any]]:
    """Collectives by message, the longest first: count, bytes of one rank's message times the count (None: unknown),
    time, and how much of that computing kernels `covered`."""
    time = length_of(device)
    result: list[dict[str, Any]] = []
    for message, rows in messages:
        size = message_bytes(message)
        result.append(
            {
                "collective": message.collective or "unknown",
                "elements": max(message.elements_in, message.elements_out) if size is not None else None,
                "dtype": message.dtype or None,
                "group": message.group[:LONGEST_NAME] or None,
                "ranks": message.group_size if message.group_size > 0 else None,
                "count": len(rows),
                "bytes": size * len(rows) if size is not None else None,
                "ns": int(time[rows].sum()),
                "overlapped_ns": int(covered[rows].sum()),
            }
        )
    return sorted(result, key=lambda entry: -entry["ns"])[:MOST]
