"""One tree for reports and comparisons: fused kernels divided, sums exact, the same places on both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfkit import table
from perfkit.tree import nodes
from perfkit.tree.places import places_of
from tests.support.analysis.examples import backend, run
from tests.support.tree.agreement import assert_one_tree

MM = "fp32[8×4], fp32[4×4]"
WIDE = "fp32[8×4], fp32[4×16]"


def row(
    name: str, pass_: str | None, module: str | None, operator: str | None, ns: float, **more: Any
) -> dict[str, Any]:
    layer = next((int(w) for w in (module or "").split(".") if w.isdecimal()), None)
    return {"name": name, "pass": pass_, "module": module, "operator": operator, "layer": layer, "duration_ns": ns,
            "family": "elementwise", "kind": "cpu_op", "bytes_read": 1e3, "bytes_written": 1e3, "placed_by": "range",
            **more}  # fmt: skip


EAGER = [
    row("aten::embedding", "encoder", "wte", "aten::embedding", 10.0),
    row("aten::add", "encoder", "wpe", "aten::add", 20.0),
    row("aten::native_layer_norm", "forward", "h.0.ln", "aten::layer_norm", 30.0),
    row("aten::addmm", "forward", "h.0.fc", "aten::linear", 100.0, family="matmul", shapes=MM),
    row("aten::gelu", "forward", "h.0.act", "aten::gelu", 40.0, bytes_read=3e3),
    row("aten::addmm", "forward", "h.1.fc", "aten::linear", 110.0, family="matmul", shapes=WIDE),
    row("aten::_foreach_add", "optimizer", "optimizer", "aten::_foreach_add", 50.0),
]
FUSED = [
    row("fused_embedding_add_layer_norm", "encoder", "wte", "embedding", 33.0, placed_by="provenance",
        serves="encoder|wte|embedding|0.333333;encoder|wpe|add|0.333333;forward|h.0.ln|layer_norm|0.333333"),
    row("mm", "forward", "h.0.fc", "linear", 90.0, family="matmul", shapes=MM),
    row("fused_without_a_mark", None, None, None, 17.0, placed_by=None),  # between two products: eager's gelu
    row("mm", "forward", "h.1.fc", "linear", 95.0, family="matmul", shapes=WIDE),
    row("fused_both_layers", "forward", "h.0.fc", "add", 7.0, placed_by="provenance",
        serves="forward|h.0.fc|add|0.1;forward|h.1.fc|add|0.9"),
    row("aten::_foreach_add", "optimizer", "optimizer", "aten::_foreach_add", 50.0),
]  # fmt: skip


def made(rows: list[dict[str, Any]], steps: int = 2) -> table.KernelTable:
    whole = [{**one, "step": step} for step in range(steps) for one in rows]
    times = [{"order": i, "start_ns": 1e3 * i} for i in range(len(whole))]
    return table.build([{**one, **at} for one, at in zip(whole, times, strict=True)], facts={"steps": steps})


def test_a_report_divides_fused_kernels_among_operators_as_a_comparison_does() -> None:
    both = run(backend("eager", 1.0), backend("compile", 0.8), tables={"eager": made(EAGER), "compile": made(FUSED)})
    report = assert_one_tree(both)
    compiled = report.backends[1]
    times = {g.key: g.time_ns for g in compiled.operators}
    assert times == pytest.approx({
        "linear": 185.0, "foreach_add": 50.0, "add": 11 + 7, "gelu": 17.0, "embedding": 11.0, "layer_norm": 11.0,
    })  # fmt: skip
    fused = {g.key: g.fused_ns for g in compiled.operators}
    assert fused == pytest.approx(
        {"add": 18.0, "embedding": 11.0, "layer_norm": 11.0, "linear": 0, "gelu": 0, "foreach_add": 0}
    )
    assert {g.key: g.count for g in compiled.operators}["add"] == pytest.approx(1 / 3 + 1)
    assert {g.key: g.time_ns for g in compiled.passes} == pytest.approx(
        {"encoder": 22.0, "forward": 11 + 90 + 17 + 95 + 7, "optimizer": 50.0}
    )
    assert compiled.passes[0].passes == ("encoder",), "the part in the forward pass is not the encoder's"


def test_what_a_backend_does_not_place_has_the_place_that_it_has_in_a_comparison_with_eager() -> None:
    tables = {"eager": made(EAGER), "compile": made(FUSED)}
    beside = assert_one_tree(run(backend("eager", 1.0), backend("compile", 0.8), tables=tables)).backends[1]
    alone = assert_one_tree(run(backend("compile", 0.8), tables={"compile": tables["compile"]})).backends[0]
    assert (beside.coverage.pass_, beside.coverage.module) == (1.0, 1.0)
    assert alone.coverage.module == pytest.approx(1 - 17 / 292)
    assert {g.key: g.time_ns for g in alone.operators}["no operator"] == pytest.approx(17.0)
    assert [g.key for g in alone.passes] == ["encoder", "forward", "optimizer", "unknown"]


def test_several_sides_share_one_tree() -> None:
    one, other = places_of(made(EAGER, 1).frame).lines, places_of(made(FUSED, 1).frame).lines
    amounts = [np.ones((len(lines), 1)) for lines in (one, other)]
    root = nodes.by_layer([(one, amounts[0]), (other, amounts[1])], 0)
    assert root is not None
    keys = [node.key for node in root.walk()]
    assert len(keys) == len(set(keys)), "a place that both have is one node"
    assert [key[0] for key in keys if len(key) == 1] == ["encoder", "forward", "optimizer", "not placed"]
    assert ("forward", 0, "linear") in keys and ("encoder", "embedding") in keys, "layers only where a pass has some"
    by_key = {node.key: node.amounts for node in root.walk()}
    assert by_key["not placed",][0] is None and by_key["not placed",][1] == [1.0]
    assert by_key[()][0] == [len(one)] and by_key[()][1] == [len(other)]
    for node in root.walk():
        for side in (0, 1):
            below = [child.amounts[side] for child in node.children if child.amounts[side] is not None]
            assert not below or sum(one[0] for one in below) == node.amounts[side][0]


def test_no_lines_make_no_tree() -> None:
    assert nodes.by_layer([(places_of(table.build([]).frame).lines, np.zeros((0, 1)))], 0) is None
