"""Costs of a program's habits, from handmade traces: waits, lists, compilation; and from real ones of an H200."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfkit.analysis.report.analyse import analyse_table
from perfkit.readers.kineto.trace import read_trace
from tests.support.readers.traces import Event, event, mark, op, write

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kineto"


def facts(path: Path, events: list[Event]) -> dict[str, Any]:
    return read_trace(write(path / "t.json", events)).facts


def call(name: str, start: float, end: float, correlation: int = -1) -> Event:
    return event("cuda_runtime", name, start, end, correlation=correlation)


def kernel(start: float, end: float, correlation: int) -> Event:
    return event("kernel", "elementwise_kernel", start, end, pid=0, tid=7, device=0, stream=7, correlation=correlation)


def test_a_wait_costs_what_the_gpu_idles_for_it_and_no_more_than_itself(tmp_path: Path) -> None:
    """The GPU works until 200; the host waits from 60 to 210 and launches again at 220; that kernel starts at 240."""
    found = facts(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 400),
            op("aten::add", 10, 30, [[8]]),
            call("cudaLaunchKernel", 15, 20, 1),
            kernel(40, 200, 1),
            op("aten::item", 50, 212, [[]]),
            op("aten::_local_scalar_dense", 55, 211, [[]]),
            call("cudaStreamSynchronize", 60, 210),
            op("aten::mul", 215, 235, [[8]]),
            call("cudaLaunchKernel", 220, 225, 2),
            kernel(240, 300, 2),
            call("cudaDeviceSynchronize", 310, 330),  # ends the measured step: whose it is nobody's fault
        ],
    )
    [wait] = found["host_waits"]
    assert (wait["operator"], wait["count"], wait["ns"]) == ("aten::item", 1, 150_000)
    assert wait["idle_ns"] == 40_000  # from 200 to 240


def test_a_short_wait_before_a_late_launch_costs_only_itself(tmp_path: Path) -> None:
    found = facts(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 400),
            op("aten::add", 10, 30, [[8]]),
            call("cudaLaunchKernel", 15, 20, 1),
            kernel(21, 25, 1),
            op("aten::item", 50, 62, [[]]),
            call("cudaStreamSynchronize", 52, 57),
            op("aten::mul", 290, 310, [[8]]),
            call("cudaLaunchKernel", 295, 300, 2),
            kernel(301, 305, 2),
        ],
    )
    assert [w["idle_ns"] for w in found["host_waits"]] == [5_000]


def test_a_wait_for_a_copy_to_the_gpu_is_no_wait_for_a_value(tmp_path: Path) -> None:
    """`x.copy_(batch)` from pageable memory: the report said to look for `.item()`."""
    upload = "Memcpy HtoD (Pageable -> Device)"
    events = [
        mark("perfkit:step:0", 0, 400),
        op("aten::copy_", 10, 60, [[8], [8]]),
        call("cudaMemcpyAsync", 15, 20, 1),
        {**kernel(25, 50, 1), "cat": "gpu_memcpy", "name": upload},
        call("cudaStreamSynchronize", 21, 55),
        op("aten::item", 70, 112, [[]]),
        call("cudaMemcpyAsync", 75, 80, 2),
        {**kernel(81, 90, 2), "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)"},
        call("cudaStreamSynchronize", 82, 100),
        op("aten::mul", 115, 135, [[8]]),
        call("cudaLaunchKernel", 120, 125, 3),
        kernel(140, 200, 3),
    ]
    waits = {(w["operator"], w["copy"]): w["count"] for w in facts(tmp_path, events)["host_waits"]}
    assert waits == {("aten::copy_", upload): 1, ("aten::item", ""): 1}
    table = read_trace(tmp_path / "t.json")
    found = [f for f in analyse_table(table, None, tmp_path).backends[0].findings if f.name == "sync"]
    remedies = {f.title.partition(" 1 ×")[0]: f.remedy for f in found}
    assert remedies.keys() == {"The host stops for a value", "The host stops until a tensor is on the GPU"}
    assert "pin_memory" in remedies["The host stops until a tensor is on the GPU"]
    assert ".item()" in remedies["The host stops for a value"]


def test_on_a_cpu_reads_of_values_are_counted_once(tmp_path: Path) -> None:
    found = facts(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 100),
            op("aten::is_nonzero", 10, 20, [[]]),
            op("aten::item", 11, 19, [[]]),
            op("aten::_local_scalar_dense", 12, 18, [[]]),
        ],
    )
    [wait] = found["host_waits"]
    assert (wait["operator"], wait["count"], wait["ns"], wait["idle_ns"]) == ("aten::is_nonzero", 1, 10_000, None)


def made_of_a_list(at: float, filling: float) -> list[Event]:
    """`torch.tensor(list)` whose `empty` begins at `at`."""
    end = at + 1 + filling
    return [
        op("aten::empty", at, at + 1),
        op("aten::to", end, end + 1, [[1000]]),
        op("aten::lift_fresh", end + 2, end + 3, [[1000]]),
        op("aten::detach_", end + 3, end + 4, [[1000]]),
    ]


def test_lists_are_seen_by_what_follows_each_other(tmp_path: Path) -> None:
    """Filling takes 100; before `empty` 60 pass since the last operator, which count as the walk for the type."""
    found = facts(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 1000),
            mark("perfkit:pass:forward", 5, 900),
            mark("perfkit:module:index", 10, 800),
            op("aten::relu", 20, 40, [[8]]),
            *made_of_a_list(100, 100),
            op("aten::eq", 300, 310, [[8], [8]]),
        ],
    )
    assert found["list_tensors"] == [{"module": "index", "count": 1, "ns": (60 + 1 + 100 + 1) * 1000}]


def test_the_walk_counts_no_longer_than_the_filling(tmp_path: Path) -> None:
    found = facts(tmp_path, [mark("perfkit:step:0", 0, 1000), op("aten::relu", 1, 2, [[8]]), *made_of_a_list(500, 100)])
    assert [entry["ns"] for entry in found["list_tensors"]] == [(100 + 1 + 100 + 1) * 1000]


def test_tensors_of_arrays_are_no_lists(tmp_path: Path) -> None:
    """`torch.as_tensor(array)`: nothing is allocated, for the memory is shared."""
    found = facts(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 100),
            op("aten::lift_fresh", 10, 12, [[5]]),
            op("aten::to", 13, 15, [[5]]),
            op("aten::lift_fresh", 16, 18, [[5]]),
        ],
    )
    assert found["list_tensors"] == []


def test_compilation_and_breaks(tmp_path: Path) -> None:
    found = facts(
        tmp_path,
        [
            mark("perfkit:step:0", 0, 1000),
            op("_compile.compile_inner (dynamo_timed)", 10, 500),
            op("Torch-Compiled Region: 0/1", 510, 700),
            op("Torch-Compiled Region: 1/0", 600, 690),
            op("aten::sin", 610, 680, [[8]]),
        ],
    )
    assert found["compiled"] == {"regions": 2, "resumed": 1, "compilations": 1, "compile_ns": 490_000}


def test_a_trace_without_events_has_none_of_it(tmp_path: Path) -> None:
    found = facts(tmp_path, [])
    assert found["host_waits"] == [] and found["list_tensors"] == [] and found["compiled"]["regions"] == 0


def test_real_waits_of_an_h200() -> None:
    """Two steps, each with two copies of pageable memory and one `.item()`."""
    waits = {w["operator"]: w for w in read_trace(FIXTURES / "eager.json.gz").facts["host_waits"]}
    assert {name: w["count"] for name, w in waits.items()} == {"aten::to": 4, "aten::item": 2}
    assert all(0 < w["idle_ns"] <= w["ns"] for w in waits.values())


def profiled(path: Path, step: Any) -> tuple[dict[str, Any], Any]:
    """The facts of one real step on this CPU, and its report."""
    from torch.profiler import ProfilerActivity, profile

    from perfkit import ranges

    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler, ranges.step(0):
        step()
    profiler.export_chrome_trace(str(path / "real.json"))
    table = read_trace(path / "real.json")
    return table.facts, analyse_table(table, None, path / "real.json").backends[0]


def test_a_real_lookup_in_a_list(tmp_path: Path) -> None:
    """Conversion and comparison apart, both among the findings; neither in a step that does without."""
    import torch

    values, hashes = list(range(40_000)), torch.randint(0, 40_000, (16, 1))

    def lookup() -> torch.Tensor:
        return (hashes.unsqueeze(-1) == torch.tensor(values)).long().argmax(-1)

    facts, report = profiled(tmp_path, lookup)
    assert len(facts["list_tensors"]) == 1
    assert {"list-to-tensor", "compare-with-all"} <= {f.name for f in report.findings}
    facts, report = profiled(tmp_path, lambda: (hashes + 1) % 40_000)
    assert facts["list_tensors"] == []
    assert not {"list-to-tensor", "compare-with-all"} & {f.name for f in report.findings}


def test_real_reads_of_values_and_a_healthy_loop(tmp_path: Path) -> None:
    import torch

    losses, weight = torch.rand(300), torch.rand(200, 200)
    facts, _ = profiled(tmp_path, lambda: [loss.item() for loss in losses] and weight[:2] @ weight)
    assert sum(wait["count"] for wait in facts["host_waits"]) == 300
    facts, _ = profiled(tmp_path, lambda: [weight @ weight for _ in range(20)] and losses.sum().item())
    assert sum(wait["count"] for wait in facts["host_waits"]) == 1


def test_a_real_recompilation_and_a_real_graph_break(tmp_path: Path) -> None:
    import torch
    import torch._dynamo

    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x.sin()

    torch._dynamo.reset()
    sizes = iter((3, 4))
    compiled = torch.compile(broken, backend="eager", dynamic=False)
    _, report = profiled(tmp_path, lambda: compiled(torch.ones(next(sizes))))
    named = {f.name: f for f in report.findings}
    assert named["recompilation"].count == 2  # a compilation takes a hundred times what the step does
    # Next to no compilation. A step takes a tenth of a ms, which another program may lengthen: one of three is enough.
    broken_up = [profiled(tmp_path, lambda: compiled(torch.ones(4)))[1] for _ in range(3)]
    assert any("graph-breaks" in {f.name for f in report.findings} for report in broken_up)
    whole = torch.compile(torch.sin, backend="eager", dynamic=False)
    _, healthy = profiled(tmp_path, lambda: whole(torch.ones(4)))
    assert not {"recompilation", "graph-breaks"} & {f.name for f in healthy.findings}
    torch._dynamo.reset()
