"""The Kineto reader on hand-made traces whose every number is worked out by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit.cost import CostModel
from perfkit.readers.kineto.trace import read_trace
from perfkit.run_folder import DeclaredKernel
from perfkit.table import KernelTable
from tests.support.readers.traces import LAYERS, PASSES, Event, event, mark, node, op, training_step, write


def read(folder: Path, events: list[Event], **more: Any) -> KernelTable:
    return read_trace(write(folder / "t.json", events), **more)


def gaps(table: KernelTable) -> dict[tuple[str, str | None], int]:
    return {(g["cause"], g["pass"]): g["ns"] for g in table.facts["gaps"]}


def total(table: KernelTable) -> int:
    """Rows plus gaps, in ns."""
    in_steps = table.frame[table.frame["step"].notna()]
    return int(in_steps["duration_ns"].sum()) + sum(g["ns"] for g in table.facts["gaps"])


@pytest.fixture
def table(tmp_path: Path) -> KernelTable:
    return read(tmp_path, training_step(), passes=PASSES, layers=LAYERS)


def test_a_row_is_a_working_operator_with_its_self_time(table: KernelTable) -> None:
    found = list(zip(table.frame["name"], table.frame["duration_ns"], strict=True))
    assert found == [
        ("aten::index_select", 28e3),  # 30 less the allocation inside; embedding, whose work it does, is not a row
        ("aten::addmm", 120e3),  # 130 less the copy of the bias
        ("aten::copy_", 10e3),
        ("aten::add", 80e3),
        ("aten::mul", 30e3),
        ("aten::mm", 80e3),
        ("aten::mm", 70e3),
        ("aten::add_", 6e3),
        ("aten::embedding_dense_backward", 70e3),
        ("aten::lerp_", 100e3),
    ]


def test_rows_and_gaps_add_up_to_the_step_exactly(table: KernelTable) -> None:
    assert table.facts["step_ns"] == [1_000_000]
    assert table.facts["busy_ns"] == [594_000]
    assert total(table) == 1_000_000


def test_every_gap_has_its_cause(table: KernelTable) -> None:
    assert gaps(table) == {
        ("dispatch", "forward"): 40_000,  # embedding 10, linear 25, t 5
        ("allocation", "forward"): 2_000,
        ("Python", "forward"): 120_000,  # outside modules 50, in modules outside operators 20 + 30 + 20
        # Between nodes 70; engine and node around operators 2 + 18, 2 + 38, 2 + 2, 2 + 8.
        ("autograd", "backward"): 144_000,
        ("Python", "optimizer"): 30_000,
        ("Python", "zero_grad"): 10_000,
        ("Python", None): 60_000,  # between the passes
    }


def test_place_by_ranges_and_by_autograd(table: KernelTable) -> None:
    frame = table.frame
    found = list(zip(frame["pass"], frame["module"], frame["operator"], frame["placed_by"], strict=True))
    fc, block = "transformer.h.0.fc", "transformer.h.0"
    assert found == [
        ("encoder", "transformer.wte", "aten::embedding", "range"),
        ("forward", fc, "aten::linear", "range"),
        ("forward", fc, "aten::linear", "range"),
        ("forward", block, "aten::add", "range"),
        ("backward", block, "aten::add", "autograd"),
        ("backward", fc, "aten::linear", "autograd"),
        ("backward", fc, "aten::linear", "autograd"),
        ("backward", fc, "aten::linear", "autograd"),  # accumulation: with the node before it
        ("backward", "transformer.wte", "aten::embedding", "autograd"),
        ("optimizer", "optimizer", "aten::lerp_", "range"),
    ]
    assert frame["layer"].isna().tolist() == [True, *[False] * 7, True, True]
    assert set(frame["layer"].dropna()) == {0}
    assert set(frame["step"]) == {0}
    assert frame["range"].dropna().unique().tolist() == ["Optimizer.step#AdamW.step"]


def test_costs_come_from_the_recorded_shapes(table: KernelTable) -> None:
    addmm = table.frame[table.frame["name"] == "aten::addmm"].iloc[0]
    assert addmm["flop_matrix_fp32"] == 2 * 6 * 4 * 8
    assert addmm["bytes_read"] == 4 * (8 + 6 * 4 + 4 * 8)
    assert addmm["bytes_written"] == 4 * 6 * 8
    assert addmm["shapes"] == "fp32[8], fp32[6×4], fp32[4×8]"
    assert (table.frame["flop_origin"] == "model").all()


def test_columns_of_identity(table: KernelTable) -> None:
    assert table.frame["order"].tolist() == list(range(10))
    assert table.frame["short_name"].iloc[1] == "addmm"
    assert table.frame["family"].iloc[1] == "matmul"
    assert set(table.frame["device"]) == {"cpu"}
    assert table.source["reader"] == "kineto"
    assert table.warnings == []


def test_the_profilers_share_is_taken_from_all_gaps_in_proportion(tmp_path: Path, table: KernelTable) -> None:
    events = table.facts["events"]
    estimated = read(tmp_path, training_step(), event_cost_ns=1000)
    before, after = gaps(table), gaps(estimated)
    profiler = sum(ns for (cause, _), ns in after.items() if cause == "profiler")
    assert profiler == pytest.approx(events * 1000, abs=len(before))
    share = 1 - profiler / sum(before.values())
    for key, ns in before.items():
        assert after[key] == pytest.approx(ns * share, abs=2)
    assert total(estimated) == 1_000_000
    assert estimated.facts["profiler_estimate"] == {"event_cost_ns": 1000, "events": events}


def test_an_estimate_larger_than_all_gaps_takes_no_more_than_them(tmp_path: Path) -> None:
    table = read(tmp_path, training_step(), event_cost_ns=1e9)
    assert {g["cause"] for g in table.facts["gaps"]} == {"profiler"}
    assert total(table) == 1_000_000


def test_a_module_range_in_the_backward_pass_is_recomputation(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 100),
            mark("perfkit:pass:forward", 0, 20),
            mark("perfkit:module:a", 1, 19),
            op("aten::mul", 2, 18, [[4], [4]], seq=7),
            mark("perfkit:pass:backward", 20, 100),
            *node("MulBackward0", 30, 90, seq=7),
            mark("perfkit:module:b", 40, 60),
            op("aten::exp", 45, 55, [[4]], seq=8),
            op("aten::mul", 70, 80, [[4], [4]]),
        ],
    )
    found = table.frame[["name", "pass", "module", "placed_by", "operator"]].to_numpy().tolist()
    assert found[1:] == [
        ["aten::exp", "backward", "b", "range", "aten::exp"],
        ["aten::mul", "backward", "a", "autograd", "aten::mul"],
    ]


def test_of_operators_with_the_same_sequence_number_the_last_made_the_node(tmp_path: Path) -> None:
    """A composite, and an operator without gradient, carry the number of the next node too."""
    table = read(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 100),
            mark("perfkit:pass:forward", 0, 50),
            mark("perfkit:module:early", 1, 9),
            op("aten::eq", 2, 8, [[4], [4]], seq=3),
            mark("perfkit:module:late", 10, 40),
            op("aten::matmul", 11, 39, [[4, 4], [4, 4]], seq=3),
            op("aten::mm", 12, 38, [[4, 4], [4, 4]], seq=3),
            mark("perfkit:pass:backward", 50, 100),
            *node("MmBackward0", 55, 95, seq=3),
            op("aten::mm", 60, 90, [[4, 4], [4, 4]]),
        ],
    )
    last = table.frame.iloc[-1]
    assert (last["module"], last["operator"]) == ("late", "aten::matmul")


def test_sequence_numbers_count_by_thread(tmp_path: Path) -> None:
    """Two threads use the same numbers; the backward of each finds its own forward, on a third thread."""
    shapes = [[4], [4]]
    events = [
        mark("perfkit:step:0", 0, 100),
        mark("perfkit:pass:forward", 0, 50),
        mark("perfkit:pass:backward", 50, 99),
    ]
    for tid, numbers in ((1, (1, 2)), (2, (2, 3))):
        for n in numbers:
            events += [
                mark(f"perfkit:module:m{tid}.{n}", 10 * n, 10 * n + 9, tid=tid),
                op("aten::mul", 10 * n + 1, 10 * n + 8, shapes, seq=n, tid=tid),
            ]
    for start, n, thread in ((51, 3, 2), (61, 2, 2), (71, 2, 1), (81, 1, 1)):
        pair = node("MulBackward0", start, start + 9, seq=n, tid=3)
        for e in pair:
            e["args"]["Fwd thread id"] = thread
        events += [*pair, op("aten::mul", start + 2, start + 7, shapes, tid=3)]
    table = read(tmp_path, events)
    backward = table.frame[table.frame["stream"] == table.frame["stream"].max()]
    assert backward["module"].tolist() == ["m2.3", "m2.2", "m1.2", "m1.1"]
    assert set(backward["pass"]) == {"backward"}


def test_work_of_the_model_itself_is_at_the_root(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 100),
            mark("perfkit:pass:forward", 0, 100),
            mark("perfkit:module:a", 1, 9),
            op("aten::mul", 2, 8, [[4], [4]]),
            op("aten::add", 20, 30, [[4], [4]]),
        ],
    )
    assert table.frame["module"].tolist() == ["a", "(root)"]
    assert table.frame["pass"].tolist() == ["forward", "forward"]


def test_without_module_ranges_no_module_is_claimed(tmp_path: Path) -> None:
    events = [
        mark("perfkit:step:0", 0, 100), mark("perfkit:pass:forward", 0, 100), op("aten::add", 20, 30, [[4], [4]]),
    ]  # fmt: skip
    table = read(tmp_path, events)
    assert table.frame["module"].isna().all()
    assert table.frame["placed_by"].tolist() == ["none"]
    assert table.frame["pass"].tolist() == ["forward"]


def test_unknown_operators(tmp_path: Path) -> None:
    """An unknown composite gives way to the work inside it; an unknown helper belongs to the operator that calls it."""
    table = read(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 200),
            op("my::composite", 0, 50),
            op("aten::mul", 5, 45, [[4], [4]]),
            op("my::mostly_own_work", 50, 100),
            op("aten::mul", 60, 65, [[4], [4]]),
            op("aten::addmm", 100, 190, [[8], [6, 4], [4, 8]]),
            op("my::helper", 110, 170),
        ],
    )
    found = table.frame[["name", "duration_ns"]].to_numpy().tolist()
    assert found == [
        ["aten::mul", 40e3], ["my::mostly_own_work", 45e3], ["aten::mul", 5e3], ["aten::addmm", 90e3],
    ]  # fmt: skip
    assert total(table) == 200_000
    unknown = table.frame.iloc[1]
    assert np.isnan(unknown["bytes_read"])
    assert unknown["bytes_origin"] == "absent"
    assert "my::mostly_own_work (25.0%)" in table.warnings[0]


def test_extra_costs_make_own_operators_known(tmp_path: Path) -> None:
    from perfkit.cost import Call, Cost

    def cost(call: Call) -> Cost:
        return Cost({"vector_fp32": float(call.tensor(0).numel)}, 8.0, 4.0)

    events = [mark("perfkit:step:0", 0, 50), op("perfkit::gelu", 5, 45, [[4, 5]])]
    table = read(tmp_path, events, costs=CostModel({"perfkit::gelu": cost}, {"perfkit::gelu": "elementwise"}))
    row = table.frame.iloc[0]
    assert (row["flop_vector_fp32"], row["bytes_read"], row["family"]) == (20, 8, "elementwise")


def test_a_generated_kernel_has_its_declared_work(tmp_path: Path) -> None:
    name = "graph_0_cpp_fused_gelu_0"
    events = [
        mark("perfkit:step:0", 0, 100),
        mark("perfkit:pass:forward", 0, 100),
        op("CompiledFunction", 5, 95, seq=1),
        op(name, 10, 60),
    ]
    declared = {
        name: DeclaredKernel(flop={"vector_fp32": 7.0}, bytes_read=16.0, bytes_written=8.0, family="elementwise")
    }
    table = read(tmp_path, events, declared=declared)
    row = table.frame.iloc[0]
    assert (row["name"], row["duration_ns"]) == (name, 50e3)
    assert (row["flop_vector_fp32"], row["bytes_read"], row["bytes_written"]) == (7, 16, 8)
    assert gaps(table)[("Python", "forward")] == 50_000  # the function around it is Python code
    undeclared = read(tmp_path, events)
    assert len(undeclared) == 1 and np.isnan(undeclared.frame["bytes_read"].iloc[0])


def test_work_on_other_threads_covers_the_gaps_of_the_step(tmp_path: Path) -> None:
    """The union of intervals: 40 µs of a worker, of which 10 overlap a row of the step's own thread."""
    table = read(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 100),
            mark("perfkit:pass:forward", 0, 100),
            op("aten::mul", 10, 30, [[4], [4]]),
            op("aten::mul", 20, 60, [[4], [4]], tid=2),
        ],
    )
    assert table.facts["busy_ns"] == [50_000]
    assert gaps(table) == {("Python", "forward"): 50_000}
    assert table.frame["pass"].tolist() == ["forward", "forward"]
    assert table.frame["step"].tolist() == [0, 0]


def test_several_steps_and_work_outside_them(tmp_path: Path) -> None:
    events = [op("aten::mul", 0, 10, [[4], [4]])]
    for i in range(3):
        start = 100 * (i + 1)
        events += [mark(f"ProfilerStep#{i + 7}", start, start + 90), op("aten::mul", start + 5, start + 85, [[4], [4]])]
    table = read(tmp_path, events)
    assert table.frame["step"].isna().tolist() == [True, False, False, False]
    assert table.frame["step"].dropna().tolist() == [0, 1, 2]
    assert table.facts["step_ns"] == [90_000] * 3
    assert gaps(table) == {("other", None): 30_000}  # no pass is marked: the cause is unknown
    assert any("1 row outside" in w for w in table.warnings)


def test_a_trace_without_steps_counts_as_one(tmp_path: Path) -> None:
    table = read(tmp_path, [op("aten::mul", 0, 10, [[4], [4]]), op("aten::mul", 20, 30, [[4], [4]])])
    assert table.facts["step_ns"] == [30_000]
    assert gaps(table) == {("other", None): 10_000}
    assert any("no steps" in w for w in table.warnings)


def test_perfkits_steps_win_over_the_profilers(tmp_path: Path) -> None:
    events = [mark("ProfilerStep#1", 0, 300), mark("perfkit:step:0", 0, 100), mark("perfkit:step:1", 100, 290)]
    table = read(tmp_path, [*events, op("aten::mul", 120, 140, [[4], [4]])])
    assert table.facts["step_ns"] == [100_000, 190_000]
    assert table.frame["step"].tolist() == [1]


def test_waiting_and_loading_have_causes(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 100),
            mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 30),
            mark("perfkit:pass:optimizer", 30, 100),
            op("aten::item", 40, 50, [[]]),
            op("aten::_local_scalar_dense", 42, 48, [[]]),
        ],
    )
    assert gaps(table) == {
        ("data", None): 30_000, ("sync", "optimizer"): 10_000, ("Python", "optimizer"): 60_000,
    }  # fmt: skip


def test_gpu_rows_are_placed_by_their_launch_and_not_by_external_id(tmp_path: Path) -> None:
    """The kernel's External id is that of an unrelated operator; its correlation leads to the launch inside mm."""
    launch = {"correlation": 7, "External id": 7}
    table = read(
        tmp_path,
        [
            mark("ProfilerStep#1", 0, 100),
            op("aten::relu", 1, 5, [[4]], **{"External id": 7}),
            op("aten::mm", 10, 30, [[4, 2], [2, 8]], **{"External id": 3}),
            event("cuda_runtime", "cudaLaunchKernel", 15, 20, **launch),
            event("cuda_runtime", "cudaDeviceSynchronize", 40, 90, correlation=8),
            event(
                "kernel", "void gemm<float>(int)", 25, 65, pid=0, tid=7, device=0, stream=7, grid=[4, 2, 1],
                block=[128, 1, 1], **launch, **{"registers per thread": 64, "shared memory": 1024},
            ),
            event("kernel", "lost", 70, 75, pid=0, tid=7, device=0, stream=7, correlation=99),
        ],
    )  # fmt: skip
    gemm, lost = table.frame.iloc[0], table.frame.iloc[1]
    assert (gemm["operator"], gemm["short_name"], gemm["device"], gemm["stream"]) == ("aten::mm", "gemm", "cuda:0", 7)
    assert (gemm["duration_ns"], gemm["flop_matrix_fp32"]) == (40e3, 2 * 4 * 2 * 8)
    assert (gemm["grid_x"], gemm["block_x"], gemm["registers"], gemm["shared_bytes"]) == (4, 128, 64, 1024)
    assert lost["placed_by"] == "none" and np.isnan(lost["bytes_read"]) and lost["step"] == 0
    assert table.facts["busy_ns"] == [45_000]
    assert sum(gaps(table).values()) == 55_000
    assert gaps(table)[("sync", None)] == 20_000  # the 50 µs of waiting less 30 in which the GPU worked


def test_a_grid_may_be_text(tmp_path: Path) -> None:
    kernel = event(
        "kernel", "triton_poi_fused_0", 0, 5, pid=0, tid=7, grid="(64, 1, 1)", block=[32, 1, 1], correlation=1
    )
    table = read(tmp_path, [kernel])
    assert table.frame[["grid_x", "grid_y", "grid_z"]].iloc[0].tolist() == [64, 1, 1]


def test_an_event_that_outlasts_the_one_around_it_is_cut(tmp_path: Path) -> None:
    events = [mark("perfkit:step:0", 0, 100), op("aten::mul", 90, 120, [[4], [4]])]
    table = read(tmp_path, events)
    assert table.frame["duration_ns"].tolist() == [10e3]
    assert total(table) == 100_000
    assert any("outlast" in w for w in table.warnings)


@pytest.mark.parametrize("seed", range(20))
def test_the_identity_holds_for_any_nesting(tmp_path: Path, seed: int) -> None:
    """Random trees of ranges, nodes and operators: rows and gaps always add up to the steps, to the nanosecond."""
    table = read(tmp_path, _random_trace(random.Random(seed)), event_cost_ns=seed * 10.0 or None)
    steps = table.facts["step_ns"]
    assert total(table) == sum(steps)
    assert sum(table.facts["busy_ns"]) == int(table.frame["duration_ns"].sum())


def _random_trace(rng: random.Random) -> list[Event]:
    names = [
        "aten::mul",
        "aten::view",
        "aten::empty",
        "aten::linear",
        "aten::clone",
        "aten::copy_",
        "aten::item",
        "x::y",
    ]
    events = []

    def fill(start: float, end: float, depth: int) -> None:
        at = start
        while depth and at < end:
            at = round(at + rng.random() * 20, 3)
            stop = round(min(at + rng.random() * 60, end), 3)
            if stop <= at:
                return
            kind = rng.random()
            if kind < 0.15:
                events.append(mark(f"perfkit:module:m.{rng.randrange(3)}", at, stop))
            elif kind < 0.3:
                events.extend(node("XBackward0", at, stop, seq=rng.randrange(9))[:1])
            else:
                shapes = [[4], [4]] if rng.random() < 0.7 else None
                events.append(op(rng.choice(names), at, stop, shapes, seq=rng.randrange(-1, 9)))
            fill(at, stop, depth - 1)
            at = stop

    for i in range(3):
        events.append(mark(f"perfkit:step:{i}", 500 * i, 500 * i + 450.123))
        for j, name in enumerate(("forward", "backward", "optimizer")):
            events.append(mark(f"perfkit:pass:{name}", 500 * i + 140 * j, 500 * i + 140 * j + 130))
            fill(500 * i + 140 * j, 500 * i + 140 * j + 130, 4)
    return events
