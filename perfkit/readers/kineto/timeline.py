"""What a trace tells about time on the GPU as a whole: busy and idle, copies, communication, streams, launch delays.

Times are whole ns over the capture unless said otherwise; overlap is always that of unions of intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.readers.kineto import messages as kineto_messages
from perfkit.readers.kineto.coding import distinct
from perfkit.readers.kineto.columns import Coded
from perfkit.readers.kineto.events import (
    ANNOTATION,
    COPY,
    KERNEL,
    RUNTIME,
    Booleans,
    DeviceEvents,
    HostEvents,
    Integers,
    Message,
)
from perfkit.readers.kineto.gaps import Cover
from perfkit.readers.kineto.gpu import Launches, device_names
from perfkit.readers.kineto.idle import by_cause_alone
from perfkit.readers.kineto.place import Steps
from perfkit.readers.kineto.rows import SYNC_CALL
from perfkit.readers.own_ranges import LINE, MODULE, PASS, STEP

_MOST = 500  # names of ranges, calls, messages
_LONGEST_NAME = 200
_DIRECTIONS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")


def facts(
    host: HostEvents,
    device: DeviceEvents,
    steps: Steps,
    gaps: list[dict[str, Any]],
    found: Launches,
    devices: Sequence[Any],
) -> dict[str, Any]:
    """The facts that a kernel table with GPU work has besides those of every trace (docs/table.md lists them)."""
    kernel = device.kind == KERNEL
    talks = kineto_messages.collectives(device)
    compute = _cover(device, kernel & ~talks)
    covered = _inside(compute, device.start, device.end)
    names, calls = device_names(device), _calls(host)
    delays = _delays(host, device, steps, found)
    return {
        "devices": _devices(device, names),
        "ranges": _ranges(host, device, found.call),
        "copies": _copies(device, covered),
        "synchronisation": _entries("kind", [call for call in calls if SYNC_CALL.search(call[0])]),
        "api": _entries("name", calls[:20]),
        "communication": _communication(device, found.messages, covered),
        "streams": _streams(device, names),
        "concurrency": _concurrency(device, names),
        "idle": by_cause_alone(gaps),
        "launch_delay": _delay(delays),
        "per_step": _per_step(device, steps, delays, talks),
        "unattributed": _part(device, found.call < 0),
        "graphs": {
            "launches": len(np.unique(found.call[found.replayed])),
            **_part(device, found.replayed),
        },
        "gpus": _gpus(device, devices),
    }


def _cover(device: DeviceEvents, chosen: Booleans) -> Cover:
    return Cover(device.start[chosen], device.end[chosen])


def _inside(cover: Cover, start: Integers, end: Integers) -> Integers:
    return cover.until(end) - cover.until(start)


def _length(device: DeviceEvents) -> Integers:
    return device.end - device.start


def _part(device: DeviceEvents, chosen: Booleans) -> dict[str, Any]:
    """How many activities are chosen, their time, and its share of all time of activities."""
    time = _length(device)
    total = int(time.sum())
    return {"activities": int(chosen.sum()), "ns": int(time[chosen].sum()), "share": _ratio(time[chosen].sum(), total)}


def _ratio(part: Any, whole: Any) -> float | None:
    return float(part) / float(whole) if whole else None


def _devices(device: DeviceEvents, names: Coded) -> list[dict[str, Any]]:
    """For each GPU how long it was busy from its first activity to the end of its last."""
    result: list[dict[str, Any]] = []
    for code, name in enumerate(names.words):
        mine = names.code == code
        start, end = device.start[mine], device.end[mine]
        result.append(
            {
                "device": name,
                "activities": int(mine.sum()),
                "kernels": int((mine & (device.kind == KERNEL)).sum()),
                "span_ns": int(end.max() - start.min()),
                "busy_ns": int(Cover(start, end).before[-1]),
                "kernel_ns": int((end - start)[(device.kind == KERNEL)[mine]].sum()),
            }
        )
    return result


def _ranges(host: HostEvents, device: DeviceEvents, launch: Integers) -> list[dict[str, Any]]:
    """Per name of annotation: how often it was open, its host time, and the kernels launched inside with their time.

    A kernel counts once for a name, however often ranges of that name nest.
    """
    if not len(host):
        return []
    shown = [not n.startswith((STEP, PASS, MODULE, LINE)) for n in host.names]
    own = (host.category == ANNOTATION) & host.named(shown)
    nearest = host.nearest(own)
    index = np.flatnonzero(own)
    host_ns = np.bincount(host.name[index], weights=(host.end - host.start)[index], minlength=len(host.names))
    count = np.bincount(host.name[index], minlength=len(host.names))
    total = {int(n): [0, 0] for n in np.flatnonzero(count)}
    mine = np.flatnonzero((launch >= 0) & (device.kind == KERNEL))
    around, inverse = distinct(nearest[launch[mine]])
    kernels = np.bincount(inverse, minlength=len(around)).tolist()
    kernel_ns = np.bincount(inverse, weights=_length(device)[mine], minlength=len(around)).tolist()
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
            "name": host.names[n][:_LONGEST_NAME],
            "count": int(count[n]),
            "host_ns": int(host_ns[n]),
            "kernels": number,
            "kernel_ns": ns,
        }
        for n, (number, ns) in total.items()
    ]
    return sorted(entries, key=lambda e: (-e["kernel_ns"], -e["host_ns"], e["name"]))[:_MOST]


def _copies(device: DeviceEvents, covered: Integers) -> list[dict[str, Any]]:
    """Copies by direction and kind of memory, the longest first: count, bytes (None where unknown), time, and how much
    of that computing kernels `covered`."""
    result: list[dict[str, Any]] = []
    copy = device.kind == COPY
    time = _length(device)
    for name in np.unique(device.name[copy]).tolist():
        mine = copy & (device.name == name)
        amount = device.amount[mine]
        text = device.names[name][:_LONGEST_NAME]
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


def _calls(host: HostEvents) -> list[tuple[str, int, int]]:
    """CUDA or HIP calls by name with their count and time on the host, the longest first."""
    mine = np.flatnonzero(host.category == RUNTIME)
    name = host.name[mine]
    count = np.bincount(name, minlength=len(host.names))
    time = np.bincount(name, weights=host.end[mine] - host.start[mine], minlength=len(host.names))
    found = [(host.names[n], int(count[n]), int(time[n])) for n in np.flatnonzero(count).tolist()]
    return sorted(found, key=lambda call: -call[2])


def _entries(key: str, calls: Sequence[tuple[str, int, int]]) -> list[dict[str, Any]]:
    return [{key: name[:_LONGEST_NAME], "count": count, "ns": ns} for name, count, ns in calls[:_MOST]]


def _communication(
    device: DeviceEvents, messages: Sequence[tuple[Message, Integers]], covered: Integers
) -> list[dict[str, Any]]:
    """Collectives by message, the longest first: count, bytes of one rank's message times the count (None: unknown),
    time, and how much of that computing kernels `covered`."""
    time = _length(device)
    result: list[dict[str, Any]] = []
    for message, rows in messages:
        size = kineto_messages.message_bytes(message)
        result.append(
            {
                "collective": message.collective or "unknown",
                "elements": max(message.elements_in, message.elements_out) if size is not None else None,
                "dtype": message.dtype or None,
                "group": message.group[:_LONGEST_NAME] or None,
                "ranks": message.group_size if message.group_size > 0 else None,
                "count": len(rows),
                "bytes": size * len(rows) if size is not None else None,
                "ns": int(time[rows].sum()),
                "overlapped_ns": int(covered[rows].sum()),
            }
        )
    return sorted(result, key=lambda entry: -entry["ns"])[:_MOST]


def _streams(device: DeviceEvents, names: Coded) -> list[dict[str, Any]]:
    """Each stream's activities and busy time, the busiest first."""
    streams, stream = distinct(device.stream)
    pair = names.code * len(streams) + stream
    result: list[dict[str, Any]] = []
    for value in np.unique(pair).tolist()[:_MOST]:
        mine = pair == value
        number = int(streams[value % len(streams)])
        result.append(
            {
                "device": names.words[value // len(streams)],
                "stream": number if number >= 0 else None,
                "activities": int(mine.sum()),
                "busy_ns": int(_cover(device, mine).before[-1]),
            }
        )
    return sorted(result, key=lambda entry: -entry["busy_ns"])


def _concurrency(device: DeviceEvents, names: Coded) -> dict[str, Any]:
    """Time with at least one activity, with at least two at once on the same GPU, and the most at once."""
    busy = several = most = 0
    for code in range(len(names.words)):
        mine = names.code == code
        moments = np.concatenate([device.start[mine], device.end[mine]])
        change = np.repeat([1, -1], int(mine.sum()))
        order = np.lexsort((change, moments))
        running = np.cumsum(change[order])
        lasting = np.diff(moments[order], append=moments[order][-1:])
        busy += int(lasting[running >= 1].sum())
        several += int(lasting[running >= 2].sum())
        most = max(most, int(running[lasting > 0].max(initial=0)))
    return {"busy_ns": busy, "several_ns": several, "most": most}


def _delay(delays: tuple[Integers, Integers]) -> dict[str, Any]:
    """How far the host runs ahead: from the start of a kernel's launch call to the kernel's start.

    `growth_ns`: by how much the median of the last quarter of a step's launches exceeds that of the first, the median
    over the steps; it grows where the host launches faster than the GPU works. Graph replays count with one kernel.
    """
    delay, step = delays
    if not len(delay):
        return {"median_ns": None, "p90_ns": None, "growth_ns": None}
    growth = []
    for number in np.unique(step[step >= 0]).tolist():
        mine = delay[step == number]
        quarter = len(mine) // 4
        if quarter:
            growth.append(float(np.median(mine[-quarter:]) - np.median(mine[:quarter])))
    return {
        "median_ns": float(np.median(delay)),
        "p90_ns": float(np.percentile(delay, 90)),
        "growth_ns": float(np.median(growth)) if growth else None,
    }


def _delays(host: HostEvents, device: DeviceEvents, steps: Steps, found: Launches) -> tuple[Integers, Integers]:
    """Delay and step of each launch with its first kernel, in the order of the launches."""
    mine = np.flatnonzero((found.call >= 0) & (device.kind == KERNEL))
    call, first = np.unique(found.call[mine], return_index=True)
    issued = host.start[call]
    order = np.argsort(issued, kind="stable")
    delay = device.start[mine[first]] - issued
    return np.maximum(delay[order], 0), steps.at(issued[order])


def _per_step(
    device: DeviceEvents, steps: Steps, delays: tuple[Integers, Integers], talks: Booleans
) -> list[dict[str, Any]]:
    """For each step its wall time, and of that the GPU's busy time, computing, copying and talking (unions each)."""
    kernel = device.kind == KERNEL
    covers = {
        "busy_ns": _cover(device, np.ones(len(device), bool)),
        "compute_ns": _cover(device, kernel & ~talks),
        "communication_ns": _cover(device, kernel & talks),
        "copy_ns": _cover(device, device.kind == COPY),
    }
    parts = {name: _inside(cover, steps.start, steps.end) for name, cover in covers.items()}
    delay, step = delays
    result: list[dict[str, Any]] = []
    for i, length in enumerate((steps.end - steps.start).tolist()):
        mine = delay[step == i]
        entry: dict[str, Any] = {"step": i, "step_ns": length}
        entry |= {name: int(values[i]) for name, values in parts.items()}
        entry["idle_ns"] = length - entry["busy_ns"]
        entry["delay_ns"] = float(np.median(mine)) if len(mine) else None
        result.append(entry)
    return result


def _gpus(device: DeviceEvents, devices: Sequence[Any]) -> list[dict[str, Any]]:
    """The GPUs that did something, as the trace describes them."""
    used = set(np.unique(device.device).tolist())
    result: list[dict[str, Any]] = []
    for said in devices:
        number = said.get("id")
        if _count(number) is None or number not in used or any(d["id"] == number for d in result):
            continue
        major, minor = said.get("computeMajor"), said.get("computeMinor")
        result.append(
            {
                "name": str(said.get("name", "GPU"))[:_LONGEST_NAME],
                "id": number,
                "smCount": _count(said.get("numSms")),
                "totalMemory": _count(said.get("totalGlobalMem")),
                "compute_capability": f"{major}.{minor}" if _count(major) is not None else None,
            }
        )
    return result


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**62 else None
