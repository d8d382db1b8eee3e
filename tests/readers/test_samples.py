"""The reader on real traces of other machines; skipped where the samples are not there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from perfkit.readers import read
from perfkit.table import KernelTable

SAMPLES = (
    "training-2022-109k-events",
    "recsys-nccl-2022-105k-events",
    "alexnet-2023-extid-collides",
    "triton-tiny",
    "rocm-mi250-tiny",
)


def load(samples: Path, name: str) -> tuple[KernelTable, list[dict[str, Any]]]:
    path = samples / "kineto" / f"{name}.json.gz"
    table = read(path)
    assert isinstance(table, KernelTable)
    return table, [e for e in json.loads(gzip.open(path).read())["traceEvents"] if e.get("ph") == "X"]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_gpu_activity_is_a_row_and_the_steps_add_up(samples: Path, name: str) -> None:
    table, events = load(samples, name)
    activity = [e for e in events if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert len(table) == len(activity)
    assert table.frame["duration_ns"].sum() == pytest.approx(1e3 * sum(e["dur"] for e in activity))
    facts = table.facts
    assert sum(facts["busy_ns"]) + sum(g["ns"] for g in facts["gaps"]) == sum(facts["step_ns"])
    assert all(0 <= busy <= step for busy, step in zip(facts["busy_ns"], facts["step_ns"], strict=True))


def test_colliding_external_ids_mislead_nobody(samples: Path) -> None:
    """Every kernel's operator encloses the call that launched it, as found here by a plain search."""
    table, events = load(samples, "alexnet-2023-extid-collides")
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")}
    operators = [e for e in events if e["cat"] == "cpu_op"]
    kernels = sorted((e for e in events if e["cat"].startswith(("kernel", "gpu_mem"))), key=lambda e: e["ts"])
    placed = 0
    for row, kernel in zip(table.frame.itertuples(), kernels, strict=True):
        call = calls.get(kernel["args"]["correlation"])
        around = [
            o
            for o in operators
            if call
            and o["tid"] == call["tid"]
            and o["ts"] <= call["ts"]
            and call["ts"] + call["dur"] <= o["ts"] + o["dur"]
        ]
        outermost = max(around, key=lambda o: o["dur"], default=None)
        assert (None if outermost is None else outermost["name"]) == (row.operator or None), kernel["name"]
        placed += outermost is not None
    assert placed > 50
