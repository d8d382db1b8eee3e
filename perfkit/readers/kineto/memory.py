"""Allocations over time in a trace of torch.profiler with `profile_memory=True`.

The profiler writes an instant event named "[memory]" at every allocation and release, with the bytes that the
allocator holds from then on. A long series is thinned to its extremes, so that every peak stays.
"""

from __future__ import annotations

import msgspec
import numpy as np

from perfkit.columns import Integers, Reals
from perfkit.readers.kineto.decode.events import MemoryEvents

POINTS = 4000  # of a series: more than a chart has pixels
_DEVICES = {0: "cpu", 1: "cuda"}  # torch's DeviceType


class AllocatorBytes(msgspec.Struct, kw_only=True):
    """The bytes that one device's allocator holds over time.

    `time_ns` counts from the first event; `reserved` (from the system) is empty where the trace has none, as on a CPU.
    `events` is their number before thinning. Peaks are of all events.
    """

    device: str
    events: int
    time_ns: list[float]
    allocated: list[float]
    reserved: list[float]
    peak_allocated: float
    peak_reserved: float | None
    last_allocated: float


class BackendMemory(msgspec.Struct, kw_only=True):
    """The allocations of one backend by device, or a sentence that says why they cannot be read."""

    name: str
    devices: list[AllocatorBytes] = []
    problem: str = ""


def allocations(memory: MemoryEvents) -> list[AllocatorBytes]:
    """Return the allocations of every device in the trace; none where it was recorded without."""
    names = [device_name(kind, index) for kind, index in memory.devices]
    known = np.isfinite(memory.time_ns) & np.isfinite(memory.allocated)
    start = memory.time_ns[known].min(initial=np.inf)
    found = []
    for name in sorted(set(names)):
        mine = known & np.array([other == name for other in names], bool)[memory.device]
        rows = np.flatnonzero(mine)
        rows = rows[np.argsort(memory.time_ns[rows], kind="stable")]
        if len(rows):
            reserved = np.nan_to_num(memory.reserved[rows])
            found.append(_series(name, memory.time_ns[rows] - start, memory.allocated[rows], reserved))
    return found


def device_name(kind: int | None, index: int | None) -> str:
    """Return the name of a device by PyTorch's type and index."""
    name = _DEVICES.get(kind or 0, f"device type {kind}")
    return name if name == "cpu" or index is None or index < 0 else f"{name}:{index}"


def _series(device: str, time: Reals, allocated: Reals, reserved: Reals) -> AllocatorBytes:
    kept = _extremes(allocated)
    return AllocatorBytes(
        device=device,
        events=len(time),
        time_ns=time[kept].tolist(),
        allocated=allocated[kept].tolist(),
        reserved=reserved[kept].tolist() if reserved.any() else [],
        peak_allocated=float(allocated.max()),
        peak_reserved=float(reserved.max()) if reserved.any() else None,
        last_allocated=float(allocated[-1]),
    )


def _extremes(values: Reals) -> Integers:
    """Indices of at most `POINTS` values: the least and the most of each of as many stretches as that allows."""
    if len(values) <= POINTS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), POINTS // 2 + 1).astype(int)[:-1]
    ends = [*edges[1:], len(values)]
    stretches = [(int(first), values[first:end]) for first, end in zip(edges, ends, strict=True)]
    both = [first + int(pick(part)) for first, part in stretches for pick in (np.argmin, np.argmax)]
    return np.unique([0, *both, len(values) - 1])
