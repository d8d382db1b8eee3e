"""The Kineto reader on traces of an H200 (tests/fixtures/kineto): every kernel's place and work, and the timeline."""

from __future__ import annotations

import gzip
import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit.columns import Coded
from perfkit.cost import Call, TensorSpec
from perfkit.readers.finish import _split_forward
from perfkit.readers.kineto.measure.calls import triton_cost
from perfkit.readers.kineto.trace import read_trace
from perfkit.table import FLOP_COLUMNS, KernelTable

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kineto"
TRACES = ("eager", "eager-stack", "compiled", "graph", "streams", "thunder", "nccl-rank0")


@cache
def table(name: str) -> KernelTable:
    return read_trace(FIXTURES / f"{name}.json.gz")


@cache
def events(name: str) -> list[dict[str, Any]]:
    with gzip.open(FIXTURES / f"{name}.json.gz") as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def kernels(name: str) -> pd.DataFrame:
    frame = table(name).frame
    return frame[frame["kind"] == "gpu_kernel"]


def launched_by(name: str) -> list[str | None]:
    """For each kernel by start the innermost operator around its launch, worked out the slow way."""
    complete = [e for e in events(name) if e["ph"] == "X"]
    calls = {e["args"]["correlation"]: e for e in complete if e["cat"] in ("cuda_runtime", "cuda_driver")}
    operators = [e for e in complete if e["cat"] == "cpu_op"]
    found: list[str | None] = []
    for kernel in sorted((e for e in complete if e["cat"] == "kernel"), key=lambda e: float(e["ts"])):
        call = calls.get(kernel["args"]["correlation"])
        around = [o for o in operators if call and o["tid"] == call["tid"] and _holds(o, call)]
        found.append(min(around, key=lambda o: float(o["dur"]))["name"] if around else None)
    return found


def _holds(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    return bool(outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 0.001)


@pytest.mark.parametrize(("name", "count"), [("eager", 100), ("eager-stack", 50), ("compiled", 88)])
def test_every_kernel_has_a_pass_a_step_and_known_bytes(name: str, count: int) -> None:
    found = kernels(name)
    assert len(found) == count
    for column in ("pass", "step", "bytes_read", "bytes_written"):
        assert found[column].notna().all(), column
    assert table(name).warnings == [] or name == "compiled"


def test_passes_and_operators_of_eager() -> None:
    found = kernels("eager")
    assert found["operator"].notna().all()
    assert found.groupby(["step", "pass"], observed=True).size().to_dict() == {
        (0, "backward"): 32, (0, "forward"): 16, (0, "optimizer"): 2,
        (1, "backward"): 32, (1, "forward"): 16, (1, "optimizer"): 2,
    }  # fmt: skip
    assert found[list(FLOP_COLUMNS)].notna().any(axis=1).all()


@pytest.mark.parametrize("name", ["eager", "eager-stack"])
def test_forward_kernels_have_the_operator_that_launched_them(name: str) -> None:
    """The table names the outermost operator; the launch rule gives the innermost: it must lie inside."""
    of_operator = {
        "aten::linear": ("aten::addmm",),
        "aten::layer_norm": ("aten::native_layer_norm",),
        "aten::cross_entropy_loss": ("aten::_log_softmax", "aten::nll_loss_forward"),
        "aten::embedding": ("aten::gather",),
    }
    found = kernels(name)
    innermost = launched_by(name)
    assert None not in innermost
    for operator, expected, pass_ in zip(found["operator"], innermost, found["pass"], strict=True):
        if pass_ == "forward":
            assert expected == operator or expected in of_operator[operator]


def test_modules_come_from_the_python_stack_and_reach_the_backward_pass() -> None:
    found = kernels("eager-stack")
    placed = found.groupby(["pass", "module"], observed=True).size()
    for module in ("Block_0.Linear_0", "Block_0.Linear_1", "Block_1.Linear_2", "Block_1.Linear_3", "Linear_4"):
        assert placed["forward", module] >= 1
        assert placed["backward", module] >= 3  # two products and the bias
    assert placed["forward", "Block_0.LayerNorm_0"] == 1
    assert placed["backward", "Block_0.LayerNorm_0"] >= 2
    assert placed["backward", "Embedding_0"] >= 1
    backward = found[found["pass"] == "backward"]
    assert backward["module"].isna().sum() == 1  # the gradient of the loss itself: ones_like
    assert set(backward["placed_by"]) == {"autograd", "none"}
    layers = found[found["module"].fillna("").str.startswith("Block_")]
    assert (layers["layer"] == layers["module"].str.extract(r"Block_(\d)")[0].astype(int)).all()
    assert found[found["module"] == "Linear_4"]["layer"].isna().all()


def test_steps_open_in_a_python_function_and_hold_their_kernels() -> None:
    """`ProfilerStep#1` begins inside `step()` and outlasts it."""
    assert (table("eager-stack").frame["step"] == 0).all()


def test_the_profilers_arrows_agree_with_the_sequence_numbers(tmp_path: Path) -> None:
    """Without sequence numbers the arrows from forward to backward give the same modules and operators."""
    bare = [
        {**e, "args": {k: v for k, v in e["args"].items() if k not in ("Sequence number", "Fwd thread id")}}
        if e.get("cat") == "cpu_op"
        else e
        for e in events("eager-stack")
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(bare))
    with_numbers, with_arrows = table("eager-stack").frame, read_trace(path).frame
    backward = with_numbers["pass"] == "backward"
    assert backward.sum() == 32
    for column in ("pass", "module", "operator"):
        assert with_numbers[column][backward].tolist() == with_arrows[column][backward].tolist()


def test_helpers_of_an_operator_add_nothing_to_its_work() -> None:
    found = kernels("eager")
    helps = found[found["short_name"] == "splitKreduce_kernel"]
    assert len(helps) == 10
    assert (helps["bytes_read"] == 0).all() and (helps["bytes_written"] == 0).all()
    assert set(helps["flop_origin"]) == set(helps["bytes_origin"]) == {"derived"}
    assert set(helps["operator"]) == {"aten::linear"}
    forward = found[(found["pass"] == "forward") & (found["operator"] == "aten::linear")]
    # x: 128 × 128, two layers 128 → 512 → 128, head 128 → 512; two steps.
    assert forward["flop_matrix_fp32"].sum() == 2 * (2 * 2 * 2 * 128 * 128 * 512 + 2 * 128 * 128 * 512)


def test_triton_kernels_have_the_bytes_of_their_tensors() -> None:
    found = kernels("compiled")
    gelu = found[found["name"] == "triton_poi_fused_gelu_view_1"]
    assert len(gelu) == 4
    assert set(gelu["shapes"]) == {"fp32[128×512], fp32[4×32×512]"}
    assert set(gelu["bytes_read"]) == set(gelu["bytes_written"]) == {128 * 512 * 4}
    assert gelu[list(FLOP_COLUMNS)].isna().all(axis=None)
    embedding = found[found["name"] == "triton_per_fused_embedding_native_layer_norm_0"].iloc[0]
    rows, table_rows = 4 * 32 * 128, 512 * 128
    # ids, mean, rstd; rows of the table, not the table; weight and bias; embedded, normalised
    assert embedding["bytes_read"] + embedding["bytes_written"] == 4 * (3 * rows + 2 * 4 * 32 + 2 * 128) + 8 * 4 * 32
    assert rows < table_rows


@pytest.mark.parametrize(
    ("name", "shapes", "elements"),
    [
        (
            "triton_poi_fused_0",
            [(32,), (200_000, 64), (32, 64)],
            32 + 2 * 32 * 64,
        ),  # rows of a table, and where they go
        ("triton_poi_fused_0", [(8, 64), (64,), (8, 64)], 2 * 8 * 64 + 64),
        ("triton_poi_fused_0", [(8, 64), (64,)], None),  # changed in place, or a row is read
        ("triton_red_fused_sum_0", [(8, 64), (8,)], 8 * 64 + 8),
        ("triton_per_fused_embedding_0", [(32,), (200_000, 64), (32, 64)], None),
    ],
)
def test_triton_kernels_without_sizes_count_no_more_than_their_loops_touch(
    name: str, shapes: list[tuple[int, ...]], elements: int | None
) -> None:
    """A gather of vLLM's counted its whole table, 1.2 GB in 11 µs."""
    cost = triton_cost(Call(name, tuple(TensorSpec(shape, "fp32") for shape in shapes)))
    assert (cost and cost.bytes) == (elements and 4 * elements)


def test_replays_of_a_cuda_graph_have_the_place_of_its_launch() -> None:
    found = table("graph")
    assert len(found) == 28
    assert set(found.frame["pass"]) == {"forward"} and found.frame["range"].eq("forward").all()
    assert found.frame["operator"].isna().all() and found.frame["bytes_read"].isna().all()
    assert found.frame["step"].tolist() == [0] * 14 + [1] * 14
    assert found.facts["graphs"] == {"launches": 2, "activities": 28, "ns": found.facts["graphs"]["ns"], "share": 1.0}
    assert any("replayed by 2 CUDA graph launches" in w for w in found.warnings)


def test_work_that_was_launched_before_the_capture_is_unattributed() -> None:
    found = table("nccl-rank0")
    lost = found.facts["unattributed"]
    assert lost["activities"] == 27
    calls = {e["args"]["correlation"] for e in events("nccl-rank0") if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    gpu = [e for e in events("nccl-rank0") if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    without = [e for e in gpu if e["args"]["correlation"] not in calls]
    assert len(without) == 27
    assert lost["ns"] == round(sum(e["dur"] for e in without) * 1000)
    assert lost["share"] == pytest.approx(sum(e["dur"] for e in without) / sum(e["dur"] for e in gpu))
    assert found.facts["before_capture"] == lost
    assert any("27 activities of the GPU were launched before the capture" in w for w in found.warnings)
    assert found.frame["step"].isna().sum() == 27 and found.frame["step"].value_counts().tolist() == [111, 111]


def test_collectives_tell_message_group_and_overlap() -> None:
    found = table("nccl-rank0")
    reduced = [c for c in found.facts["communication"] if c["collective"] == "all_reduce" and c["elements"]]
    assert {(c["elements"], c["dtype"], c["group"], c["ranks"]) for c in reduced} == {
        (n, "fp32", "default_pg", 2) for n in (1024, 1049088, 1050112, 1050624)
    }
    assert sum(c["count"] for c in reduced) == 14
    assert all(c["bytes"] == 4 * c["elements"] * c["count"] for c in reduced)
    assert {c["collective"] for c in found.facts["communication"]} == {
        "all_reduce", "all_gather", "broadcast", "reduce_scatter", "all_to_all", "send_recv",
    }  # fmt: skip
    assert all(0 <= c["overlapped_ns"] <= c["ns"] for c in found.facts["communication"])
    assert sum(c["overlapped_ns"] for c in reduced) > 0
    rows = found.frame[found.frame["family"] == "collective"]
    assert len(rows) == 30
    assert "all_reduce fp32[1050624], 2 ranks of default_pg" in set(rows["shapes"])
    assert rows["bytes_read"].isna().all()  # a link bounds them, not the memory
    assert set(rows["operator"].dropna()) == {
        "nccl:all_reduce", "nccl:all_gather", "nccl:broadcast", "nccl:_reduce_scatter_base", "nccl:all_to_all",
    }  # fmt: skip


def test_copies_and_concurrent_streams() -> None:
    facts = table("streams").facts
    assert facts["copies"] == [
        {
            "name": "Memcpy HtoD (Pinned -> Device)", "direction": "HtoD", "count": 2, "bytes": 2 * 4 * 1024 * 1024,
            "ns": facts["copies"][0]["ns"], "overlapped_ns": 0,
        }
    ]  # fmt: skip
    assert {s["stream"]: s["activities"] for s in facts["streams"]} == {7: 4, 22: 4}
    spans = [
        (round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000))
        for e in events("streams")
        if e.get("cat") in ("kernel", "gpu_memcpy")
    ]
    moments = sorted({t for span in spans for t in span})
    running = [(b - a, sum(s <= a and b <= e for s, e in spans)) for a, b in pairwise(moments)]
    assert facts["concurrency"]["busy_ns"] == pytest.approx(sum(ns for ns, n in running if n), abs=4)
    assert facts["concurrency"]["several_ns"] == pytest.approx(sum(ns for ns, n in running if n > 1), abs=4)
    assert facts["concurrency"]["most"] == 2
    assert facts["launch_delay"]["median_ns"] > 1e6  # the host waits at the end of the step only


@pytest.mark.parametrize("name", TRACES)
def test_busy_and_idle_add_up_to_every_step(name: str) -> None:
    facts = table(name).facts
    idle = sum(cause["ns"] for cause in facts["idle"])
    assert idle == sum(step["idle_ns"] for step in facts["per_step"])
    assert [step["step_ns"] for step in facts["per_step"]] == facts["step_ns"]
    for step in facts["per_step"]:
        assert step["busy_ns"] + step["idle_ns"] == step["step_ns"]
        assert max(step["compute_ns"], step["communication_ns"], step["copy_ns"]) <= step["busy_ns"]
    assert facts["gpus"][0]["name"] == "NVIDIA H200" and facts["gpus"][0]["smCount"] == 132
    json.dumps(facts, allow_nan=False)


@pytest.mark.parametrize("name", ["eager", "compiled"])
def test_the_host_has_launched_a_step_when_its_last_launch_call_ends(name: str) -> None:
    found = events(name)
    steps = [e for e in found if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]
    ends = [e["ts"] + e["dur"] for e in found if e.get("cat", "").startswith("cuda_") and "aunchKernel" in e["name"]]
    for step, told in zip(sorted(steps, key=lambda e: e["ts"]), table(name).facts["per_step"], strict=True):
        last = max(end for end in ends if step["ts"] <= end <= step["ts"] + step["dur"])
        assert told["launched_ns"] == pytest.approx((last - step["ts"]) * 1000, abs=4)


def test_why_the_gpu_waits_in_a_small_eager_model() -> None:
    """The host cannot feed the GPU: nearly all idle time is before a launch, in the program or in operators."""
    found = table("eager").facts
    idle = {cause["cause"]: cause["ns"] for cause in found["idle"]}
    late = ("autograd", "dispatch", "Python", "launch", "allocation")
    assert sum(idle[cause] for cause in late) > 0.95 * sum(idle.values())
    assert set(idle) == {*late, "latency", "sync", "driver", "queued"}
    assert all(step["busy_ns"] < 0.2 * step["step_ns"] for step in found["per_step"])


def test_times_are_those_of_the_file() -> None:
    durations = sorted(round(e["dur"] * 1000) for e in events("eager") if e.get("cat") == "kernel")
    assert np.array_equal(np.sort(kernels("eager")["duration_ns"]), durations)


def test_thunder_s_kernels_are_where_the_shapes_of_their_products_say() -> None:
    """The widths of GPT-2 tiny (C = 64, V = 512) show the linear layer of a product; the order shows the block."""
    found = kernels("thunder")
    assert len(found) == 688 and found["module"].notna().mean() > 0.99
    products = found[(found["family"] == "matmul") & (found["operator"] == "linear")]
    of_width = {"192": "attn.c_attn", "256": "mlp", "512": "lm_head"}
    for shapes, module in zip(products["shapes"], products["module"], strict=True):
        expected = next((name for width, name in of_width.items() if width in shapes), "attn.c_proj")
        assert expected in module, shapes
    first = products[products["step"] == 0]
    for name, blocks in (("forward", ["0", "1"]), ("backward", ["1", "0"])):
        modules = first["module"][first["pass"] == name]
        assert list(dict.fromkeys(m.split(".")[2] for m in modules if ".h." in m)) == blocks


def test_a_pass_that_was_split_before_and_one_that_is_split_now_are_one() -> None:
    """Some kernels of `reduce-overhead` are placed by Inductor's provenance, pass and all, others by their launch."""
    passes = Coded.of(["classifier", "forward", "forward", None, "backward"])
    modules = Coded.of(["head", "head", "block", None, "head"])

    split = _split_forward(passes, modules, {"classifier": ("head",)})

    assert split.tolist() == ["classifier", "classifier", "forward", None, "backward"]
