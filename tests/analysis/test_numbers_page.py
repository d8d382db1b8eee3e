"""The figures of docs/numbers.md are those that the code gives."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from perfkit import table
from perfkit.analysis.report.analyse import analyse_table
from perfkit.cost import GPTShape, matmul_flop
from perfkit.readers.kineto.measure.rows import CAUSES
from tests.support.analysis.examples import ceilings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "numbers.md").read_text(encoding="utf-8")


def test_the_hand_calculation_of_gpt2() -> None:
    flop = matmul_flop(GPTShape(batch=4, time=64, channels=768, heads=12, layers=12, vocabulary=50257))
    parts = {
        "qkv": "QKV",
        "attention_scores": "attention scores",
        "projection": "projection",
        "mlp": "MLP",
        "logits": "logits",
    }
    for part, label in parts.items():
        stated = re.search(rf"\| {label} \| [^|]+ \| ([\d.]+) \|", PAGE)
        assert stated and stated[1] == f"{flop['forward'][part] / 1e9:.3f}"
    assert f"**{flop['forward']['total'] / 1e9:.3f}**" in PAGE
    assert f"{flop['backward']['total'] / 1e9:.3f} GFLOP" in PAGE
    assert f"The step: {flop['step']['total'] / 1e9:.3f} GFLOP" in PAGE


def test_the_worked_example_of_the_roofline() -> None:
    machine = msgspec.structs.replace(
        ceilings(), bandwidth=[(1024.0, 50e9)], details=[d for d in ceilings().details if d.value == 50e9]
    )
    rows = [
        {"name": "mm", "duration_ns": 20e3, "flop_matrix_fp32": 1e6, "bytes_read": 40e3, "bytes_written": 0.0},
        {"name": "add", "duration_ns": 200e3, "flop_vector_fp32": 1e6, "bytes_read": 8e6, "bytes_written": 0.0},
        {"name": "unknown", "duration_ns": 100e3},
    ]
    report = analyse_table(table.build([{**r, "order": i} for i, r in enumerate(rows)]), machine, "p").backends[0]
    by_name = {g.key: g for g in report.kernels}
    assert (by_name["mm"].roof_ns, by_name["add"].roof_ns, by_name["unknown"].roof_ns) == (10e3, 160e3, None)
    assert (report.headroom_ns, report.efficiency) == (pytest.approx(50e3), pytest.approx(170 / 220))
    assert "170 / 220 = 77 %" in PAGE


def test_every_cause_of_a_gap_is_explained() -> None:
    for cause in CAUSES:
        assert f"| {cause} |" in PAGE
