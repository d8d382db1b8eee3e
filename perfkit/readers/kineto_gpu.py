"""Rows of GPU activity, placed by the operator that launched it.

The way is kernel → correlation id → runtime or driver call → innermost operator around that call. An External id is not
trusted: before 2024 it may name an unrelated operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.readers import kineto_columns
from perfkit.readers.kineto_events import OPERATOR, RUNTIME, DeviceEvents, HostEvents, Integers
from perfkit.readers.kineto_json import Args, Trace
from perfkit.readers.kineto_place import Place, Steps
from perfkit.readers.kineto_rows import Rows


def columns(
    host: HostEvents, device: DeviceEvents, places: Place, rows: Rows, steps: Steps, trace: Trace
) -> dict[str, Any]:
    """Columns of the rows on the GPU, by start. A launch outside the trace leaves the place absent."""
    launch = _launches(host, device)
    operator = _innermost_operator(host, launch)
    step = np.where(launch >= 0, places.step[np.maximum(launch, 0)] if len(host) else -1, steps.at(device.start))
    result: dict[str, Any] = {
        "name": device.name,
        "kind": device.kind,
        "device": [_device_name(a) for a in device.args],
        "stream": [a.stream if isinstance(a.stream, int) else None for a in device.args],
        "start_ns": device.start.astype(float),
        "duration_ns": (device.end - device.start).astype(float),
    }
    result.update(kineto_columns.placed(host, places, np.where(operator >= 0, operator, launch), step))
    result["operator"] = _operator_names(host, places, operator)
    result.update(_launch_columns(device.args))
    result.update(_costs_once(rows, operator, device))
    return result


def _launches(host: HostEvents, device: DeviceEvents) -> Integers:
    """The runtime or driver call that launched each activity, or −1."""
    calls = np.flatnonzero(host.category == RUNTIME)
    by_id = {host.args[i].correlation: i for i in calls.tolist() if host.args[i].correlation >= 0}
    return np.array([by_id.get(a.correlation, -1) for a in device.args], dtype=np.int64)


def _innermost_operator(host: HostEvents, launch: Integers) -> Integers:
    """The innermost operator around each launch, or −1."""
    if not len(host):
        return np.full(len(launch), -1, np.int64)
    own = np.where(host.category == OPERATOR, np.arange(len(host)), -1)
    return np.where(launch >= 0, host.inherit(own)[np.maximum(launch, 0)], -1)


def _operator_names(host: HostEvents, places: Place, operator: Integers) -> list[str | None]:
    logical = [int(places.operator[i]) if i >= 0 else -1 for i in operator.tolist()]
    return [host.names[host.name[i]] if i >= 0 else None for i in logical]


def _device_name(args: Args) -> str:
    return f"cuda:{args.device}" if isinstance(args.device, int) else "cuda"


def _launch_columns(args: list[Args]) -> dict[str, Any]:
    """Grid, block, registers and shared memory as the trace states them."""
    shapes = {"grid": [_three(a.grid) for a in args], "block": [_three(a.block) for a in args]}
    result: dict[str, Any] = {
        f"{what}_{axis}": [v[i] for v in values] for what, values in shapes.items() for i, axis in enumerate("xyz")
    }
    result["registers"] = [int(a.registers) if a.registers is not None else None for a in args]
    result["shared_bytes"] = [np.nan if a.shared_memory is None else float(a.shared_memory) for a in args]
    result["occupancy"] = [np.nan if a.occupancy is None else a.occupancy / 100 for a in args]
    return result


def _three(value: list[int] | str | None) -> tuple[int | None, int | None, int | None]:
    """Three sizes; some Triton traces hold them as text such as "(64, 1, 1)" or a single number."""
    if isinstance(value, str):
        value = [int(part) for part in value.strip("()[] ").split(",") if part.strip().isdigit()]
    padded = [*(value or []), None, None, None][:3]
    return (padded[0], padded[1], padded[2])


def _costs_once(rows: Rows, operator: Integers, device: DeviceEvents) -> dict[str, Any]:
    """The cost of an operator goes to the longest activity that it launched; for the others it is absent."""
    length = device.end - device.start
    order = np.lexsort((-length, operator))
    first = np.ones(len(order), bool)
    first[1:] = operator[order][1:] != operator[order][:-1]
    chosen = np.full(len(operator), -1, np.int64)
    chosen[order[first]] = operator[order[first]]
    costed = kineto_columns.costed(rows, chosen)
    return {**costed, "shapes": kineto_columns.costed(rows, operator)["shapes"]}
