"""Facts about time on the GPU as a whole: busy and idle, copies, communication, streams, launch delays.

Times are whole ns over the capture unless said otherwise; overlap is always that of unions of intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit.columns import Booleans, Coded, Integers
from perfkit.intervals import Steps, Union, by_cause_alone
from perfkit.numbers import median, numbered, percentile, unique
from perfkit.profile_names import blocks_host
from perfkit.readers.kineto.attribution.gpu_steps import GpuSteps, Launches
from perfkit.readers.kineto.decode.events import COPY, KERNEL, OVERHEAD, DeviceEvents, HostEvents, Message
from perfkit.readers.kineto.measure.collectives import collectives
from perfkit.readers.kineto.measure.gpu import device_names
from perfkit.readers.kineto.measure.gpu_traffic import (
    LONGEST_NAME,
    MOST,
    calls_of,
    communication,
    copies,
    cover_of,
    entries,
    inside,
    length_of,
    ranges,
)
from perfkit.readers.kineto.measure.rows import PROFILERS_OWN


@dataclass(frozen=True)
class _Calls:
    """Launch calls in order: the delay until the first kernel of each starts, its step, and when the call ends."""

    delay: Integers
    step: Integers
    end: Integers


def facts(
    host: HostEvents,
    device: DeviceEvents,
    steps: Steps,
    on_gpu: GpuSteps,
    gaps: list[dict[str, Any]],
    launches: Launches,
    messages: Sequence[tuple[Message, Integers]],
    devices: Sequence[Any],
) -> dict[str, Any]:
    """The facts that a kernel table with GPU work has besides those of every trace (docs/table.md lists them)."""
    kernel = device.kind == KERNEL
    talks = collectives(device)
    compute = cover_of(device, kernel & ~talks)
    covered = inside(compute, device.start, device.end)
    names, calls = device_names(device), calls_of(host)
    launched = _launch_calls(host, device, steps, launches)
    return {
        "devices": _devices(device, names),
        "ranges": ranges(host, device, launches.call),
        "copies": copies(device, covered),
        "synchronisation": entries("kind", [call for call in calls if blocks_host(call[0])]),
        "api": entries("name", calls[:20]),
        "communication": communication(device, messages, covered),
        "streams": _streams(device, names),
        "concurrency": _concurrency(device, names),
        "idle": by_cause_alone(gaps),
        "launch_delay": _delay(launched),
        "per_step": _per_step(host, device, steps, on_gpu, launched, talks),
        "before_capture": _part(device, on_gpu.before),
        "unattributed": _part(device, launches.call < 0),
        "graphs": {
            "launches": len(unique(launches.call[launches.replayed])),
            **_part(device, launches.replayed),
        },
        "gpus": _gpus(device, devices),
    } | ({"host_step_ns": (steps.end - steps.start).tolist()} if on_gpu.behind else {})


def _part(device: DeviceEvents, chosen: Booleans) -> dict[str, Any]:
    """Return how many activities are chosen, their time, and its share of all time of activities."""
    time = length_of(device)
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
                "busy_ns": int(Union(start, end).before[-1]),
                "kernel_ns": int((end - start)[(device.kind == KERNEL)[mine]].sum()),
            }
        )
    return result


def _streams(device: DeviceEvents, names: Coded) -> list[dict[str, Any]]:
    """Each stream's activities and busy time, the busiest first."""
    streams, stream = numbered(device.stream)
    pair = names.code * len(streams) + stream
    result: list[dict[str, Any]] = []
    for value in unique(pair).tolist()[:MOST]:
        mine = pair == value
        number = int(streams[value % len(streams)])
        result.append(
            {
                "device": names.words[value // len(streams)],
                "stream": number if number >= 0 else None,
                "activities": int(mine.sum()),
                "busy_ns": int(cover_of(device, mine).before[-1]),
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


def _delay(calls: _Calls) -> dict[str, Any]:
    """Return how far the host runs ahead: from the start of a kernel's launch call to the kernel's start.

    `growth_ns`: by how much the median of the last quarter of a step's launches exceeds that of the first, the median
    over the steps; it grows where the host launches faster than the GPU works. Graph replays count with one kernel.
    """
    delay, step = calls.delay, calls.step
    if not len(delay):
        return {"median_ns": None, "p90_ns": None, "growth_ns": None}
    growth = []
    for number in unique(step[step >= 0]).tolist():
        mine = delay[step == number]
        quarter = len(mine) // 4
        if quarter:
            growth.append(median(mine[-quarter:]) - median(mine[:quarter]))
    return {
        "median_ns": median(delay),
        "p90_ns": percentile(delay, 90),
        "growth_ns": median(np.array(growth)) if growth else None,
    }


def _launch_calls(host: HostEvents, device: DeviceEvents, steps: Steps, found: Launches) -> _Calls:
    """The launch calls of kernels."""
    mine = np.flatnonzero((found.call >= 0) & (device.kind == KERNEL))
    call, first = np.unique(found.call[mine], return_index=True)
    issued = host.start[call]
    order = np.argsort(issued, kind="stable")
    delay = device.start[mine[first]] - issued
    return _Calls(np.maximum(delay[order], 0), steps.at(issued[order]), host.end[call][order])


def _per_step(
    host: HostEvents, device: DeviceEvents, steps: Steps, on_gpu: GpuSteps, calls: _Calls, talks: Booleans
) -> list[dict[str, Any]]:
    """For each step its wall time, and of that the GPU's busy time, computing, copying and talking (unions each).

    `on_gpu` has the steps as the GPU ran them. `profiler_ns` is how long the profiler's own work kept a thread of the
    host, `launched_ns` how long after the begin of the host's step it had launched its last kernel.
    """
    spans, own = on_gpu.steps, ~on_gpu.before
    kernel = (device.kind == KERNEL) & own
    covers = {
        "busy_ns": cover_of(device, own),
        "compute_ns": cover_of(device, kernel & ~talks),
        "communication_ns": cover_of(device, kernel & talks),
        "copy_ns": cover_of(device, (device.kind == COPY) & own),
    }
    recording = (host.category == OVERHEAD) & host.named([n in PROFILERS_OWN for n in host.names])
    parts = {name: inside(cover, spans.start, spans.end) for name, cover in covers.items()}
    parts["profiler_ns"] = inside(Union(host.start[recording], host.end[recording]), steps.start, steps.end)
    result: list[dict[str, Any]] = []
    for i, length in enumerate((spans.end - spans.start).tolist()):
        mine = calls.step == i
        entry: dict[str, Any] = {"step": i, "step_ns": length}
        entry |= {name: int(values[i]) for name, values in parts.items()}
        entry["idle_ns"] = length - entry["busy_ns"]
        entry["delay_ns"] = median(calls.delay[mine]) if mine.any() else None
        entry["launched_ns"] = int(calls.end[mine].max() - steps.start[i]) if mine.any() else None
        result.append(entry)
    return result


def _gpus(device: DeviceEvents, devices: Sequence[Any]) -> list[dict[str, Any]]:
    """The GPUs that did something, as the trace describes them.

    AMD numbers the devices of kernels otherwise than those that it describes: where all are of one kind, each is.
    """
    used = unique(device.device).tolist()
    described: dict[int, dict[str, Any]] = {}
    for said in devices:
        if _count(number := said.get("id")) is not None:
            described.setdefault(number, _gpu(said))
    kinds = list(described.values())
    if kinds and all(kind == kinds[0] for kind in kinds):
        return [{"id": number, **kinds[0]} for number in used if number >= 0]
    return [{"id": number, **described[number]} for number in used if number in described]


def _gpu(said: dict[str, Any]) -> dict[str, Any]:
    """A GPU as a trace describes it, but for its number."""
    major, minor = said.get("computeMajor"), said.get("computeMinor")
    return {
        "name": str(said.get("name", "GPU"))[:LONGEST_NAME],
        "smCount": _count(said.get("numSms")),
        "totalMemory": _count(said.get("totalGlobalMem")),
        "compute_capability": f"{major}.{minor}" if _count(major) is not None else None,
    }


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**62 else None
