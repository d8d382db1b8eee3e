"""Counters sampled over time: GPU metrics of an nsys export and counter tracks of a trace, made by hand.

Tables and columns are those of public exports; the names are of NVIDIA's set for GH100.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit.readers.counters import measure_of
from perfkit.readers.kineto.trace import read_trace
from tests.support.readers import nsys_exports as nsys
from tests.support.readers.traces import event, mark, op, write

READ, WRITE = (f"DRAM {word} Bandwidth [Throughput %]" for word in ("Read", "Write"))
TENSOR = "Tensor Active [Throughput %]"
OTHER = "NVLink TX Requests User Data [Throughput %]"


def sampled(metrics: dict[str, list[int]], times: list[int]) -> dict[str, list[dict[str, Any]]]:
    """Two steps with samples: each holds from the time before it."""
    kind = 0x1000  # of device 0
    rows = [
        {"timestamp": time, "typeId": kind, "metricId": number, "value": value}
        for number, values in enumerate(metrics.values())
        for time, value in zip(times, values, strict=True)
    ]
    names = [
        {"typeId": kind, "sourceId": 1, "typeName": "GH100", "metricId": number, "metricName": name}
        for number, name in enumerate(metrics)
    ]
    tables = nsys.two_steps()
    gpu = {**tables["TARGET_INFO_GPU"][0], "memoryBandwidth": 1_000_000_000_000}
    return {**tables, "GPU_METRICS": rows, "TARGET_INFO_GPU_METRICS": names, "TARGET_INFO_GPU": [gpu]}


def uses(facts: dict[str, Any], of: str) -> dict[str, dict[str, Any]]:
    return {one["key"]: one for one in facts["counter_tracks"] if one["of"] == of}


def test_gpu_metrics_of_an_export(tmp_path: Path) -> None:
    """Step 0 has kernels at 150-250, 340-400, 700-800 and a copy at 920-950, step 1 one at 1300-1500."""
    times = [100, 200, 400, 1000, 1400, 1600]
    metrics = {READ: [90, 50, 20, 10, 40, 0], WRITE: [0, 10, 0, 0, 0, 30], TENSOR: [0, 100, 50, 0, 0, 80]}
    table = nsys.table_of(tmp_path, sampled({**metrics, OTHER: [0] * 6}, times))
    steps = uses(table.facts, "step")
    # 150-200 at 50 %, 200-250 and 340-400 at 20 %, 700-800 and 920-950 at 10 %.
    held = 50 * 0.5 + 110 * 0.2 + 130 * 0.1
    assert steps["0"]["busy_ns"] == steps["0"]["covered_ns"] == 290
    assert steps["0"]["dram_read"] == pytest.approx(held / 290)
    assert steps["0"]["tensor"] == pytest.approx((50 * 1.0 + 110 * 0.5) / 290)
    # At 1 TB/s a nanosecond moves 1000 bytes.
    assert steps["0"]["dram_bytes"] == pytest.approx((held + 50 * 0.1) * 1000)
    assert steps["1"]["dram_read"] == pytest.approx(0.2) and steps["1"]["dram_write"] == pytest.approx(0.15)
    assert uses(table.facts, "pass")["backward"]["dram_read"] == pytest.approx(0.1)
    assert "l2" not in steps["0"] and "dram" not in steps["0"]
    said = [text for text in table.warnings if "counter track" in text]
    assert said == [f"1 counter track is not understood, and in no figure: {OTHER}"]


def test_what_is_not_sampled_is_not_known(tmp_path: Path) -> None:
    table = nsys.table_of(tmp_path, sampled({READ: [0, 50]}, [150, 200]))
    first, second = (uses(table.facts, "step")[step] for step in "01")
    assert (first["covered_ns"], first["dram_read"]) == (50, 0.5)
    assert "dram_bytes" not in first  # writes are not in it
    assert second["covered_ns"] == 0 and "dram_read" not in second
    (tmp_path / "plain").mkdir()
    assert "counters" not in nsys.table_of(tmp_path / "plain", nsys.two_steps()).facts


def test_values_that_are_no_percentages_are_in_no_figure(tmp_path: Path) -> None:
    table = nsys.table_of(tmp_path, sampled({READ: [0, 5000, 7]}, [100, 500, 2000]))
    assert "counters" not in table.facts and any(READ in text for text in table.warnings)


def test_counter_tracks_of_a_trace(tmp_path: Path) -> None:
    """A counter of a trace holds from its own time on."""
    events = [mark("ProfilerStep#1", 0, 100), op("aten::mm", 10, 30, [[4, 2], [2, 8]])]
    events.append(event("cuda_runtime", "cudaLaunchKernel", 11, 12, correlation=1))
    events.append(event("kernel", "gemm", 20, 60, pid=0, tid=7, device=0, stream=7, correlation=1))
    for time, read, rest in ((0, 80, 3), (40, 20, 4), (100, 0, 5)):
        values = {READ: read, "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": 50}
        events.append({"ph": "C", "name": "GPU 0 Counters", "pid": 0, "ts": 1e6 + time, "args": values})
        events.append({"ph": "C", "name": "Queue length", "pid": 0, "ts": 1e6 + time, "args": {"Stream 7": rest}})
    table = read_trace(write(tmp_path / "t.json", events))
    (step,) = uses(table.facts, "step").values()
    assert step["busy_ns"] == step["covered_ns"] == 40_000
    assert step["dram_read"] == pytest.approx(0.5) and step["sm"] == pytest.approx(0.5)
    assert "dram_bytes" not in step and uses(table.facts, "family")["matmul"]["dram_read"] == pytest.approx(0.5)
    assert [text for text in table.warnings if "Queue length" in text]


def test_the_report_shows_them(tmp_path: Path) -> None:
    from perfkit.analysis.report.analyse import analyse_table
    from perfkit.render.page import render_text
    from perfkit.render.report import on_terminal, report_page

    table = nsys.table_of(tmp_path, sampled({READ: [0, 50, 20]}, [100, 500, 2000]))
    form = on_terminal(None)
    text = render_text(report_page(analyse_table(table, None, "p"), form), fold=form.fold)
    assert "Counters by step" in text and "DRAM reads" in text


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        (READ, "dram_read"),
        ("dramc__write_throughput.avg.pct_of_peak_sustained_elapsed", "dram_write"),
        ("SMs Active [Throughput %]", "sm"),
        ("Compute Warps in Flight [Throughput %]", ""),
        ("SM Active [Avg]", ""),
        ("GPC Clock Frequency [MHz]", ""),
        ("DRAM Read Bandwidth [GB/s]", ""),
    ],
)
def test_names(name: str, measure: str) -> None:
    assert measure_of(name) == measure
