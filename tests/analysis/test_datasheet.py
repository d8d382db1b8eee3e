"""Profiles from where nothing was measured: the datasheet of the named device judges, and every figure says so."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit import table
from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.results import Report
from perfkit.render import terminal

A100 = {"name": "NVIDIA A100-SXM4-40GB", "numSms": 108}
ROWS: tuple[dict[str, Any], ...] = (
    {
        "name": "ampere_sgemm_128x64_tn", "family": "matmul", "duration_ns": 8.8e6, "flop_matrix_fp32": 1.374e11,
        "bytes_read": 1.34e8, "bytes_written": 6.7e7,
    },
    {"name": "copy", "family": "copy", "duration_ns": 1.0e6, "flop_vector_fp32": 0.0, "bytes_read": 5.6e8,
     "bytes_written": 5.6e8},
    {"name": "add", "family": "elementwise", "duration_ns": 1.0e4, "flop_vector_fp32": 1e6, "bytes_read": 1.5e7,
     "bytes_written": 1.5e7},
)  # fmt: skip
COMMON = {
    "kind": "gpu_kernel", "device": "cuda:0", "time_origin": "counter", "flop_origin": "model", "bytes_origin": "model",
    "grid_x": 4096, "grid_y": 1, "grid_z": 1,
}  # fmt: skip


def report(*gpus: dict[str, Any]) -> Report:
    rows = [{**COMMON, "short_name": row["name"], "order": i, **row} for i, row in enumerate(ROWS)]
    return analyse_table(table.build(rows, source={"reader": "kineto"}, facts={"gpus": list(gpus)}), None, "trace.json")


def test_the_datasheet_of_the_named_device_is_the_roof() -> None:
    made = report(A100, A100)
    kernels = {group.key: group for group in made.backends[0].kernels}
    product, copy = kernels["ampere_sgemm_128x64_tn"], kernels["copy"]
    assert product.efficiency == pytest.approx(1.374e11 / 19.5e12 / 8.8e-3)
    assert copy.efficiency == pytest.approx(1.12e9 / 1555e9 / 1e-3)
    assert "(datasheet)" in product.ceiling and "(datasheet)" in copy.ceiling
    assert "fp32-matmul" in {finding.name for finding in made.backends[0].findings}


def test_what_fits_the_cache_and_is_faster_than_memory_counts_as_at_its_roof() -> None:
    [add] = [group for group in report(A100).backends[0].kernels if group.key == "add"]
    assert add.efficiency == pytest.approx(1.0) and not add.above_roof and add.helped_ns


def test_every_figure_by_a_datasheet_says_so() -> None:
    made = report(A100)
    printed = " ".join(terminal.render(made, width=200).split())
    assert "†80.1" in printed and "†72.0" in printed
    assert printed.count("† is of the datasheet of A100 40 GB") == 1
    assert "of what the datasheet's roof allows" in made.verdict[1]
    assert "Ceilings of A100 40 GB, datasheet" in printed and "Measured here" not in printed
    assert all(group.datasheet for group in made.backends[0].kernels)


@pytest.mark.parametrize("gpus", [[], [{"name": "Some GPU 9000"}], [{**A100, "numSms": 42}]])
def test_a_device_that_is_not_known_judges_nothing(gpus: list[dict[str, Any]]) -> None:
    made = report(*gpus)
    assert made.backends[0].efficiency is None and made.ceilings is None
    assert "†" not in terminal.render(made)
