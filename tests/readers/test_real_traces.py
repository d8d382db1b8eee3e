"""The reader on traces that torch.profiler makes here, of a tiny GPT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from perfkit.readers.kineto.trace import read_trace  # noqa: E402
from perfkit.table import KernelTable  # noqa: E402
from tests.support.compiled import fresh_graphs  # noqa: E402
from tests.support.readers import model as m  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Enough for tiny tensors, and steadier during other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> KernelTable:
    torch.manual_seed(0)
    path = m.capture(tmp_path_factory.mktemp("eager") / "eager.json.gz", m.GPT())
    return read_trace(path, passes=m.PASSES, layers=m.LAYERS, event_cost_ns=700)


def share(table: KernelTable, known: str) -> float:
    time = table.frame["duration_ns"]
    return float(time[table.frame[known].notna()].sum() / time.sum())


def accounted(table: KernelTable) -> int:
    return int(table.frame["duration_ns"].sum()) + sum(g["ns"] for g in table.facts["gaps"])


def other(table: KernelTable) -> float:
    gaps = sum(g["ns"] for g in table.facts["gaps"] if g["cause"] == "other")
    return float(gaps / sum(table.facts["step_ns"]))


def test_eager_is_covered(eager: KernelTable) -> None:
    assert share(eager, "pass") >= 0.98
    assert share(eager, "module") >= 0.95
    assert share(eager, "bytes_read") >= 0.98
    assert eager.warnings == []


def test_every_gap_of_eager_has_a_cause(eager: KernelTable) -> None:
    assert accounted(eager) == sum(eager.facts["step_ns"])
    assert other(eager) <= 0.02
    causes = {g["cause"] for g in eager.facts["gaps"]}
    assert {"Python", "autograd", "dispatch", "allocation", "profiler"} <= causes


def test_the_table_does_the_work_of_the_model(eager: KernelTable) -> None:
    """Matrix FLOP by hand: per token and layer 24·C² + 4·T·C, and the head's 2·C·V; backward twice that."""
    n = m.B * m.T
    forward = 2 * n * (24 * m.C**2 + 4 * m.T * m.C) + 2 * n * m.C * m.V
    by_pass = eager.frame.groupby("pass", observed=True)["flop_matrix_fp32"].sum() / eager.facts["steps"]
    assert by_pass["forward"] + by_pass["classifier"] == forward
    assert by_pass["backward"] == 2 * forward


def test_backward_rows_stand_beside_their_forward(eager: KernelTable) -> None:
    frame = eager.frame
    matrix = frame[frame["family"] == "matmul"]
    count = matrix.groupby(["module", "pass"], observed=True).size() / eager.facts["steps"]
    for module in (
        *(f"h.{i}.{p}" for i in (0, 1) for p in ("attn.c_attn", "attn.c_proj", "mlp.0", "mlp.2")),
        "lm_head",
    ):
        assert count[module, "backward"] == 2, module
        assert count[module, "classifier" if module == "lm_head" else "forward"] == 1, module
    assert count["h.0.attn", "backward"] == 4
    backward = frame[(frame["pass"] == "backward") & (frame["name"] == "aten::gelu_backward")]
    assert set(backward["module"]) == {"h.0.mlp.1", "h.1.mlp.1"}
    assert set(backward["operator"]) == {"aten::gelu"}
    assert set(backward["placed_by"].astype(str)) == {"autograd"}
    assert sorted(set(frame["layer"].dropna())) == [0, 1]


def test_gradient_accumulation_keeps_every_row_in_place(tmp_path: Path) -> None:
    table = read_trace(m.capture(tmp_path / "t.json", m.GPT(), steps=1, accumulate=2), passes=m.PASSES)
    adds = table.frame[(table.frame["pass"] == "backward") & (table.frame["name"] == "aten::add_")]
    assert len(adds) > 10
    assert share(table, "module") >= 0.95
    assert adds["module"].notna().all()
    assert accounted(table) == sum(table.facts["step_ns"])


def test_recomputation_keeps_its_module_in_the_backward_pass(tmp_path: Path) -> None:
    table = read_trace(m.capture(tmp_path / "t.json", m.GPT(recompute=True), steps=1), layers=m.LAYERS)
    frame = table.frame[(table.frame["pass"] == "backward") & table.frame["module"].isin(["h.0.mlp.0", "h.1.mlp.0"])]
    matrix = frame[frame["family"] == "matmul"]
    assert (matrix["placed_by"] == "range").sum() == 2  # one forward again in each block
    assert (matrix["placed_by"] == "autograd").sum() == 4
    assert share(table, "module") >= 0.95
    assert other(table) <= 0.02


def test_no_work_counts_twice(eager: KernelTable) -> None:
    """Composites whose work a called operator does are not rows."""
    names = set(eager.frame["name"])
    assert names.isdisjoint(
        {"aten::embedding", "aten::linear", "aten::matmul", "aten::clone", "aten::cross_entropy_loss"}
    )
    assert {"aten::addmm", "aten::bmm", "aten::native_layer_norm", "aten::gelu", "aten::_log_softmax"} <= names


@pytest.mark.slow
def test_compiled_kernels_are_rows(tmp_path: Path) -> None:
    import torch._inductor.config as inductor

    model = m.GPT(layers=0)  # embedding, norm, head and loss: few kernels, for each takes a compiler a second
    with fresh_graphs(), inductor.patch({"cpp.enable_kernel_profile": True}):
        path = m.capture(tmp_path / "t.json", model, torch.compile(model))
    table = read_trace(path)
    fused = table.frame[table.frame["name"].str.startswith("graph_")]
    assert {"forward", "backward"} <= set(fused["pass"])
    assert share(table, "pass") >= 0.98
    assert accounted(table) == sum(table.facts["step_ns"])
    assert other(table) <= 0.02
