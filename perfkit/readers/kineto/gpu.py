"""Rows of GPU activity, placed by the operator that launched it.

The way is kernel → correlation id → runtime or driver call → innermost operator around that call. An External id is not
trusted: before 2024 it may name an unrelated operator. All kernels of a CUDA graph have the correlation of the graph's
launch, and its place: which operators the graph was captured from the trace does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit.readers.kineto import columns as kineto_columns
from perfkit.readers.kineto import messages as kineto_messages
from perfkit.readers.kineto import work as kineto_work
from perfkit.readers.kineto.coding import distinct
from perfkit.readers.kineto.columns import Coded, integers
from perfkit.readers.kineto.events import (
    ANNOTATION,
    KINDS,
    OPERATOR,
    RUNTIME,
    Booleans,
    DeviceEvents,
    HostEvents,
    Integers,
    Message,
)
from perfkit.readers.kineto.place import Place, Steps
from perfkit.readers.kineto.rows import Rows

_REPLAY = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")


@dataclass
class Launches:
    """For each activity the runtime or driver call that launched it (−1: none in the trace) and the innermost operator
    around that call; `replayed` marks what a CUDA graph's launch started. `messages` are those of collectives, each
    with the activities that send it."""

    call: Integers
    operator: Integers
    replayed: Booleans
    messages: list[tuple[Message, Integers]]

    @property
    def around(self) -> Integers:
        """For each activity the host event that tells its place: the operator, else the call; −1 for none."""
        return np.where(self.operator >= 0, self.operator, self.call)


def launches(host: HostEvents, device: DeviceEvents) -> Launches:
    """Find out who launched what."""
    call = _calls(host, device)
    messages = kineto_messages.messages(host, device, call)
    if not len(host):
        return Launches(call, call.copy(), np.zeros(len(call), bool), messages)
    operator = np.where(call >= 0, host.nearest(host.category == OPERATOR)[np.maximum(call, 0)], -1)
    replay = host.named([n.startswith(_REPLAY) for n in host.names])
    return Launches(call, operator, (call >= 0) & replay[np.maximum(call, 0)], messages)


def columns(
    host: HostEvents, device: DeviceEvents, places: Place, rows: Rows, steps: Steps, found: Launches
) -> dict[str, Any]:
    """Columns of the rows on the GPU, by start. A launch outside the trace leaves the place absent."""
    launch = found.call
    step = steps.at(device.start)
    if len(host):
        step = np.where(launch >= 0, places.step[np.maximum(launch, 0)], step)
    result: dict[str, Any] = {
        "name": Coded(device.names, device.name),
        "kind": Coded(list(KINDS), device.kind),
        "device": device_names(device),
        "stream": integers(device.stream),
        "start_ns": device.start.astype(float),
        "duration_ns": _duration(device),
    }
    result.update(kineto_columns.placed(host, places, found.around, step))
    result["operator"] = _operator_names(host, device, places, found)
    result.update(_launch_columns(host, device))
    result.update(kineto_work.columns(host, device, rows, found.call, found.replayed))
    result["shapes"] = kineto_messages.described(found.messages, result["shapes"])
    return result


def _duration(device: DeviceEvents) -> Any:
    """How long each activity ran in ns; unknown where the trace has no time for it, or it is below its resolution."""
    length = (device.end - device.start).astype(float)
    return np.where(length > 0, length, np.nan)


def _calls(host: HostEvents, device: DeviceEvents) -> Integers:
    """The runtime or driver call that launched each activity, or −1."""
    calls = np.flatnonzero((host.category == RUNTIME) & (host.correlation >= 0))
    if not len(calls):
        return np.full(len(device), -1, np.int64)
    calls = calls[np.argsort(host.correlation[calls], kind="stable")]
    ids = host.correlation[calls]
    at = np.searchsorted(ids, device.correlation, side="right") - 1
    hit = (at >= 0) & (ids[np.maximum(at, 0)] == device.correlation)
    return np.where(hit, calls[np.maximum(at, 0)], -1)


def _operator_names(host: HostEvents, device: DeviceEvents, places: Place, found: Launches) -> Coded:
    """The logical operator; for a collective the range of the collective itself, whatever set it off."""
    if not len(host):
        return Coded([], np.full(len(device), -1))
    logical = np.where(found.operator >= 0, places.operator[np.maximum(found.operator, 0)], -1)
    range_ = host.nearest((host.category == ANNOTATION) & host.named([n.startswith("nccl:") for n in host.names]))
    collective = np.where(found.call >= 0, range_[np.maximum(found.call, 0)], -1)
    chosen = np.where(collective >= 0, collective, logical)
    return Coded(host.names, np.where(chosen >= 0, host.name[np.maximum(chosen, 0)], -1))


def device_names(device: DeviceEvents) -> Coded:
    """`cuda:0`, or `cuda` where the number is missing."""
    used, code = distinct(device.device)
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
