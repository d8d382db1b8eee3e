"""Runs and traces to fill a logdir with."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec

from perfkit.run_folder import CEILINGS, KERNELS, write_manifest
from tests.conftest import ROOT
from tests.support.analysis.examples import backend, run

FIXTURES = ROOT / "tests" / "fixtures"
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31mred\x07\u202eevil <b>b</b>"


def write_run(folder: Path, *names: str, memory: bool = False) -> Path:
    """A run folder of backends `names`, each of half the time of the one before; with traces where `memory`."""
    backends = [backend(name, 100 / 2**i, trace="x.pt.trace.json" if memory else "") for i, name in enumerate(names)]
    made = run(*backends)
    folder.mkdir(parents=True)
    (folder / CEILINGS).write_bytes(msgspec.json.encode(made.ceilings))
    for i, (name, table) in enumerate(made.tables.items()):
        (folder / name).mkdir()
        table.frame["duration_ns"] /= 2**i
        table.write(folder / name / KERNELS)
        if memory:
            write_trace(folder / name / "x.pt.trace.json", [4096, 8192 >> i, 0])
    write_manifest(folder, made.manifest)
    return folder


def write_trace(path: Path, allocated: list[float | None] = [], names: list[str] = ["aten::add"], **times: Any) -> Path:  # noqa: B006
    """A trace of operators `names`, each of 5 µs (or `ts`, `dur`), and of allocations."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10.0 * i, "dur": 5.0, **times}
        for i, name in enumerate(names)
    ]
    for i, total in enumerate(allocated):
        args = {"Total Allocated": total, "Total Reserved": 0, "Bytes": 1, "Device Type": 0, "Device Id": -1}
        events.append({"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 10.0 * i, "args": args})
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
