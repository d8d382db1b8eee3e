"""Profiles of XLA (JAX; TensorFlow and PyTorch/XLA too) → kernel table.

A row is a kernel, copy or fill of a GPU; without any, an operation of XLA that ran on the CPU, by its own time. What an
operation is, the HLO module says that the profile holds (`*.xplane.pb` alone); a fusion has the place of its root.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.errors import InputError
from perfkit.readers.nsys.activity import Activity
from perfkit.readers.nsys.capture import assemble, measured
from perfkit.readers.xla.command_buffers import instructions_of
from perfkit.readers.xla.hlo import Module, read_module
from perfkit.readers.xla.operations import XlaOperation, operation_of, work_columns
from perfkit.readers.xla.places import place_of
from perfkit.readers.xla.profile import XlaProfile
from perfkit.readers.xla.rows import PROCESS, XlaRows, calls_of, occupancy, ranges_of, rows_of
from perfkit.readers.xla.wire import Damaged
from perfkit.table import KernelTable

READER = "XLA"
AGAIN = "Record it again with `jax.profiler.trace(FOLDER)`, around steps that end (`block_until_ready`)."


def read(path: Path) -> KernelTable:
    """Read an `*.xplane.pb` or `*.trace.json.gz`. Raises `InputError` for a damaged one, and where nothing ran."""
    from perfkit.readers.xla.trace_json import read_trace_json
    from perfkit.readers.xla.xplane import read_xplane

    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        profile = read_xplane(data) if data[:1] == b"\n" else read_trace_json(data)
        modules = {number: read_module(proto) for number, proto in profile.modules.items()}
    except (OSError, EOFError, zlib.error, Damaged) as error:
        raise InputError(f"{path} is damaged: {error}.", AGAIN) from error
    return _table(path, profile, modules)


def _table(path: Path, profile: XlaProfile, modules: dict[int, Module]) -> KernelTable:
    rows = rows_of(profile)
    activity = rows.listed.activity()
    if not len(activity):
        tpu = any(name.startswith("/device:TPU") for name in profile.planes)
        what = (
            "ran on a TPU, whose operations perfkit does not read" if tpu else "holds no kernel and no operation of XLA"
        )
        raise InputError(f"{path} is a profile of XLA that {what}.", "Open it with XProf." if tpu else AGAIN)
    activity.process[:] = PROCESS
    stats = [rows.stats[i] for i in rows.listed.order]
    columns = measured(activity)
    known = instructions_of(columns["name"], columns["kind"], stats, modules)
    operations = [operation_of(stat, modules, known.get(row)) for row, stat in enumerate(stats)]
    columns |= _placed(operations)
    columns |= work_columns(columns, operations, rows.on_gpu)
    columns["duration_ns"] = np.array([rows.self_ns[i] for i in rows.listed.order], float)
    facts: dict[str, Any] = {"hlo_modules": sorted({str(s["hlo_module"]) for s in stats if s.get("hlo_module")})}
    if rows.on_gpu:
        columns["occupancy"] = np.array([occupancy(stat) for stat in stats])
        facts["gpus"] = _gpus(profile)
    else:
        columns |= {"kind": ["cpu_op"] * len(stats), "device": ["cpu"] * len(stats)}
        facts["devices"] = []
    warnings = _warnings(profile, rows, modules, activity)
    return assemble(
        activity, calls_of(profile), ranges_of(profile), columns, facts, warnings, {"path": str(path), "reader": READER}
    )


def _placed(operations: list[XlaOperation]) -> dict[str, Any]:
    """Operator, module and pass of each row, from the name of its operation."""
    places = [place_of(operation.scopes) for operation in operations]
    return {
        "operator": [place.operator or one.name for place, one in zip(places, operations, strict=True)],
        "module": [place.module for place in places],
        "pass": [place.pass_ for place in places],
        "placed_by": ["provenance" if place.module or place.pass_ else "none" for place in places],
    }


def _warnings(profile: XlaProfile, found: XlaRows, modules: dict[int, Module], activity: Activity) -> list[str]:
    said = [*profile.notes, *activity.dropped]
    if not modules:
        said.append(
            "the file holds no HLO modules: FLOP, bytes and places are unknown. The `*.xplane.pb` next to it holds them"
        )
    if not found.on_gpu:
        said.append("nothing ran on a GPU in this profile: a row is an operation of XLA on the CPU, by its own time")
    return said


def _gpus(profile: XlaProfile) -> list[dict[str, Any]]:
    """The GPUs as their planes describe them; the profile has no names of models, only the vendor's."""
    return [
        {
            "name": f"{said['device_vendor']} GPU",
            "vendor": said["device_vendor"],
            "smCount": said.get("core_count"),
            "totalMemory": said.get("memory_size"),
        }
        for name, said in profile.planes.items()
        if name.startswith("/device:GPU:") and said.get("core_count") and said.get("device_vendor")
    ]
