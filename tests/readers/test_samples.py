"""The reader on real traces of other machines; skipped where the samples are not there."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import InputError, Unavailable
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


NSYS = "t4-cupy-nvtx-schema3.20.2.sqlite"


def test_kernels_ranges_and_busy_time_of_nsight_systems(samples: Path) -> None:
    table = read(samples / "nsys" / NSYS)
    assert isinstance(table, KernelTable)
    kernels = table.frame[table.frame["kind"] == "gpu_kernel"]
    assert len(kernels) == 3689
    loop = next(r for r in table.facts["ranges"] if r["name"] == "Loop")
    assert (loop["kernels"], loop["kernel_ns"]) == (3677, 1_129_090_520)
    in_loop = kernels[kernels["range"].str.split("/").str[0] == "Loop"]
    assert (len(in_loop), in_loop["duration_ns"].sum()) == (3677, 1_129_090_520)
    (step,), (busy,) = table.facts["step_ns"], table.facts["busy_ns"]
    assert step == pytest.approx(1790.6e6, abs=0.05e6)
    assert busy / step == pytest.approx(0.632, abs=0.0005)
    assert busy + sum(gap["ns"] for gap in table.facts["gaps"]) == step


def test_the_sweep_agrees_with_a_join_in_sql(samples: Path) -> None:
    path = samples / "nsys" / NSYS
    table = read(path)
    assert isinstance(table, KernelTable)
    query = """
        SELECT coalesce(n.text, s.value), count(*), sum(k.end - k.start)
        FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.globalTid = n.globalTid AND r.start >= n.start AND r.start < n.end
        JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId
        WHERE n.eventType IN (59, 60) GROUP BY n.rowid
    """
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        found: dict[str, list[int]] = {}
        for name, count, ns in connection.execute(query):
            total = found.setdefault(name, [0, 0])
            total[0], total[1] = total[0] + count, total[1] + ns
    connection.close()
    ours = {r["name"]: [r["kernels"], r["kernel_ns"]] for r in table.facts["ranges"] if r["kernels"]}
    assert len(ours) > 50 and ours == found


def test_captures_that_cannot_be_read_get_a_sentence(samples: Path) -> None:
    with pytest.raises(InputError, match="holds no GPU activity"):
        read(samples / "nsys" / "runtime-only-no-kernel-table-schema3.17.2.sqlite")
    if shutil.which("nsys") is None:
        with pytest.raises(Unavailable, match="nsys export"):
            read(samples / "nsys" / "mlp.nsys-rep")
