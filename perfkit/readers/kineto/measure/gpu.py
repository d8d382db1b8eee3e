"""Rows of GPU activity (kernels, copies and fills), and the time in which a GPU has work (`at_work`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.columns import Coded, Integers, Whole, integers
from perfkit.intervals import Union
from perfkit.numbers import first_rows, numbered
from perfkit.readers.kineto.attribution.gpu_steps import Launches, queues
from perfkit.readers.kineto.decode.events import KINDS, DeviceEvents, HostEvents, Message, in_whole_us
from perfkit.readers.kineto.measure.collectives import columns_of, described
from perfkit.readers.kineto.measure.rows import HostRows
from perfkit.readers.kineto.measure.work import work_columns
from perfkit.readers.launch_order import launch_order


def columns(
    host: HostEvents,
    device: DeviceEvents,
    rows: HostRows,
    launches: Launches,
    owner: Integers,
    messages: Sequence[tuple[Message, Integers]],
) -> dict[str, Any]:
    """Columns of the rows on the GPU, by start, but for their places.

    `owner` has the rows that do the work of replayed activities, `messages` are those of collectives.
    """
    result: dict[str, Any] = {
        "name": Coded(device.names, device.name),
        "kind": Coded(list(KINDS), device.kind),
        "device": device_names(device),
        "stream": integers(device.stream),
        "order": _order(host, device, launches),
        "start_ns": device.start.astype(float),
        "duration_ns": _duration(device),
    }
    result.update(_launch_columns(host, device))
    result.update(work_columns(host, device, rows, launches, owner))
    result["shapes"] = described(messages, result["shapes"])
    return result | columns_of(device, messages)


def _order(host: HostEvents, device: DeviceEvents, launches: Launches) -> Whole:
    known = launches.call >= 0
    launched = host.start[np.maximum(launches.call, 0)] if known.any() else np.zeros(len(device), np.int64)
    return integers(launch_order(launched, known, queues(device)))


def _duration(device: DeviceEvents) -> Any:
    """How long each activity ran in ns; unknown where the trace has no time for it. In a trace in whole µs 0 is a time
    like the others: as far off as they are."""
    length = (device.end - device.start).astype(float)
    return length if in_whole_us(device.start, device.end) else np.where(length > 0, length, np.nan)


def device_names(device: DeviceEvents) -> Coded:
    """`cuda:0`, or `cuda` where the number is missing."""
    used, code = numbered(device.device)
    return Coded([f"cuda:{n}" if n >= 0 else "cuda" for n in used.tolist()], code)


def _launch_columns(host: HostEvents, device: DeviceEvents) -> dict[str, Any]:
    """Grid, block, registers and shared memory as the trace states them; AMD states them at the launching call."""
    at, shapes = device.shape, list(device.shapes)
    known = np.array([s.grid[0] >= 0 for s in shapes], dtype=bool)
    if host.launches and not known.all():
        at = at.copy()
        for i in np.flatnonzero(~known[at]).tolist():
            shape = host.launches.get(int(device.correlation[i]), (None, -1))[0]
            if shape is not None:
                shapes.append(shape)
                at[i] = len(shapes) - 1
    result: dict[str, Any] = {}
    for what in ("grid", "block"):
        sizes = np.array([getattr(s, what) for s in shapes], dtype=np.int64).reshape(-1, 3)
        result.update({f"{what}_{axis}": integers(sizes[at, i]) for i, axis in enumerate("xyz")})
    result["registers"] = integers(np.array([s.registers for s in shapes])[at])
    result["shared_bytes"] = _real(np.array([s.shared_memory for s in shapes])[at])
    result["occupancy"] = _real(np.array([s.occupancy for s in shapes])[at]) / 100
    return result


def _real(values: Any) -> Any:
    return np.where(values < 0, np.nan, values)


LATE = 1_000_000  # ns from the launch on an idle GPU: some 5 µs are usual, where the host batches launches more


def at_work(host: HostEvents, device: DeviceEvents, launch: Integers) -> Union:
    """The union of all activities, and the time in which the first of a stream waited for work that the trace lacks.

    `launch` is the host event that launched each activity, −1 for none. A GPU starts in µs what it has only to begin,
    and what a stream waits for was launched before: where the trace shows nothing of it, it began before the trace.
    """
    streams, stream = numbered(device.stream)
    pairs, pair = numbered(numbered(device.device)[1] * len(streams) + stream)
    first = first_rows(pair, len(pairs))
    first = first[launch[first] >= 0]
    issued, start = host.end[launch[first]], device.start[first]
    late = start - issued > LATE
    return Union(np.append(device.start, issued[late]), np.append(device.end, start[late]))
