"""A machine and tables whose rooflines are worked out by hand, and runs made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perfkit import table
from perfkit.hardware.ceilings import Ceiling, Ceilings
from perfkit.readers.run import Run
from perfkit.run_folder import BackendRun, Check, Correctness, Manifest, Settings, WorkloadFacts

KIB, MIB = 2.0**10, 2.0**20


def ceilings(**changes: Any) -> Ceilings:
    """100 GB/s up to 1 MiB, 50 GB/s up to 64 MiB, 10 GB/s beyond; 100 GFLOP/s in matmuls, 20 in vectors."""
    curve = [(64 * KIB, 100e9), (1 * MIB, 50e9), (64 * MIB, 10e9)]
    compute = {"matrix_fp32": 100e9, "vector_fp32": 20e9}
    details = [
        Ceiling(name="triad", resource="memory", unit="B/s", value=rate, how="", working_set=s) for s, rate in curve
    ]
    details += [Ceiling(name="best", resource=r, unit="FLOP/s", value=v, how="") for r, v in compute.items()]
    known = Ceilings(
        fingerprint="f", device="cpu", measured_at="2026-01-01T00:00:00Z", threads=2, bandwidth=curve, compute=compute,
        details=details, caches={"L1d": 96 * KIB, "L2": 2 * MIB, "L3": 32 * MIB},
    )  # fmt: skip
    return msgspec.structs.replace(known, **changes)


# name, pass, module, ns, FLOP column and value, bytes read, bytes written. None: unknown.
ROWS = (
    ("aten::mm", "forward", "h.0.fc", 20e3, ("flop_matrix_fp32", 1e6), 30e3, 10e3),
    ("aten::add", "forward", "h.0", 200e3, ("flop_vector_fp32", 1e6), 4e6, 4e6),
    ("my::op", "backward", None, 100e3, None, None, None),
    ("aten::exp", "backward", "h.1", 40e3, ("flop_vector_fp32", 1e6), 0.0, 0.0),
)
FAMILIES = {"aten::mm": "matmul", "aten::add": "elementwise", "my::op": "other", "aten::exp": "elementwise"}
FACTS = {
    "steps": 2,
    "step_ns": [400e3, 440e3],
    "busy_ns": [350e3, 370e3],
    "gaps": [
        {"cause": "Python", "pass": "forward", "ns": 60e3, "count": 3},
        {"cause": "Python", "pass": "backward", "ns": 20e3, "count": 3},
        {"cause": "dispatch", "pass": "forward", "ns": 30e3, "count": 3},
        {"cause": "other", "pass": None, "ns": 10e3, "count": 1},
    ],
    "events": 30,
}


def kernel_table(steps: int = 2) -> table.KernelTable:
    """`ROWS`, the same in each of `steps` steps."""
    rows = []
    for step in range(steps):
        for name, pass_, module, ns, work, read, written in ROWS:
            row = {
                "name": name, "short_name": name.split("::")[1], "family": FAMILIES[name], "kind": "cpu_op",
                "order": len(rows), "step": step, "pass": pass_, "module": module, "duration_ns": ns,
                "bytes_read": read, "bytes_written": written, "shapes": "fp32[4]" if work else None,
            }  # fmt: skip
            rows.append({**row, work[0]: work[1]} if work else row)
    return table.build(rows, facts=FACTS)


def correctness(ok: bool = True) -> Correctness:
    return Correctness(
        reference="eager in fp64", ok=ok, checks=[Check("loss", 1e-7, 3e-7, 1e-7, ok)], reference_losses=[]
    )


def backend(name: str, millis: float, *, spread: float = 0.01, ok: bool = True, **more: Any) -> BackendRun:
    """A backend whose ten samples lie around `millis`, a share `spread` up and down."""
    samples = [millis * 1e6 * (1 + spread * (i - 4.5) / 4.5) for i in range(10)]
    fields = {"status": "ok" if ok else "wrong", "reason": "" if ok else "logits differ", "samples_ns": samples}
    return BackendRun(name=name, **{**fields, "correctness": correctness(ok), **more})


def run(*backends: BackendRun, tables: dict[str, table.KernelTable] | None = None, **changes: Any) -> Run:
    """A run folder in memory."""
    manifest = Manifest(
        perfkit="0.1.0",
        created="2026-01-01T00:00:00Z",
        command=["perfkit", "run", "toy"],
        settings=Settings(workload="toy", preset="tiny", batch_size=2),
        workload=WorkloadFacts(
            title="toy", parameters=10, samples_per_step=8, model_flop={"forward": 2e9, "backward": 4e9}
        ),
        backends=list(backends),
    )
    found = {b.name: kernel_table() for b in backends} if tables is None else tables
    fields = {"ceilings": msgspec.to_builtins(ceilings()), **changes}
    return Run(Path("runs/toy"), manifest, found, **fields)
