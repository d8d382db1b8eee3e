"""Numbers of a step are of what the step launched, whatever the host and the GPU do meanwhile; each right value is
worked out by a few lines of plain Python from the events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit.readers.kineto.trace import read_trace
from perfkit.table import KernelTable
from tests.support.readers.traces import Event, event, mark, node, op, write


class Program:
    """A program on a host and its GPUs: `launch` takes the host's time, and the stream works its queue off in order."""

    def __init__(self, offset: float = 0.0) -> None:
        self.events: list[Event] = []
        self.free: dict[Any, float] = {}
        self.number, self.launched = 100, list[tuple[float, float, float]]()  # launch, start and end of each kernel
        self.offset = offset

    def launch(
        self, at: float, length: float, *, recorded: bool = True, stream: int = 7, device: int = 0, tid: Any = 1,
        cat: str = "kernel", name: str = "k", number: int | None = None,
    ) -> None:  # fmt: skip
        if number is None:
            self.number += 1
        start = max(at + 5, self.free.get((device, stream), 0.0) + 1)
        self.free[device, stream] = start + length
        if recorded:
            call = "cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel"
            self.events.append(event("cuda_runtime", call, at, at + 3, tid=tid, correlation=number or self.number))
        self.events.append(
            event(cat, name, start + self.offset, start + self.offset + length, pid=device, tid=stream, device=device,
                  stream=stream, correlation=number or self.number)
        )  # fmt: skip
        self.launched.append((at, start, start + length))

    def read(self, tmp_path: Path) -> KernelTable:
        return read_trace(write(tmp_path / "t.json", self.events))


def by_step(found: KernelTable) -> list[tuple[int, float]]:
    """Count and time (µs) of the rows of each step."""
    rows = found.frame[found.frame["step"].notna()]
    return [(len(g), g["duration_ns"].sum() / 1e3) for _, g in rows.groupby(rows["step"].astype(int))]


def union(spans: list[tuple[float, float]], low: float, high: float) -> float:
    """Return the part of [low, high) that the spans cover."""
    covered, reach = 0.0, low
    for start, end in sorted(spans):
        start, end = max(start, reach), min(end, high)
        covered, reach = covered + max(end - start, 0), max(reach, end)
    return covered


def expected(program: Program, marks: list[tuple[float, float]]) -> list[tuple[int, float]]:
    """Count and time of what was launched inside each mark."""
    inside = [[k for k in program.launched if low <= k[0] < high] for low, high in marks]
    return [(len(mine), sum(end - start for _, start, end in mine)) for mine in inside if mine]


@pytest.mark.parametrize("queued", [0, 40, 125, 400])
def test_the_host_runs_ahead_by_several_steps(tmp_path: Path, queued: int) -> None:
    program, marks = Program(), [(1000 + 10_000 * s, 10_990 + 10_000 * s) for s in range(4)]
    for _ in range(queued):
        program.launch(0, 199, recorded=False, name="earlier")
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        for k in range(100):
            program.launch(low + 50 + 95 * k, 199)
    found = program.read(tmp_path)
    own = program.launched[queued:]
    assert by_step(found) == expected(program, marks) == [(100, 19_900)] * 4
    first = [own[100 * s][1] for s in range(4)]
    spans = [*zip(first, [*first[1:], own[-1][2]], strict=True)]
    assert found.facts["step_ns"] == [round(1000 * (high - low)) for low, high in spans]
    busy = [union([k[1:] for k in own], low, high) for low, high in spans]
    assert found.facts["busy_ns"] == [round(1000 * one) for one in busy]
    assert found.facts["host_step_ns"] == [9_990_000] * 4
    assert found.facts["before_capture"]["activities"] == queued
    assert sum(found.facts["step_ns"]) == sum(found.facts["busy_ns"]) + sum(g["ns"] for g in found.facts["gaps"])
    assert "a step is the GPU's" in " ".join(found.warnings)
    assert ("launched before the capture" in " ".join(found.warnings)) == bool(queued)


def test_a_host_that_waits_has_its_marks_as_steps(tmp_path: Path) -> None:
    program, marks = Program(), [(1000 + 10_000 * s, 11_000 + 10_000 * s) for s in range(3)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        for k in range(10):
            program.launch(low + 500 * k, 300)
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, marks) == [(10, 3000)] * 3
    assert found.facts["step_ns"] == [10_000_000] * 3 and "host_step_ns" not in found.facts


def test_a_clock_that_is_behind_is_no_host_that_runs_ahead(tmp_path: Path) -> None:
    """Each step's first kernel began 30 µs before the mark of its step, by the GPU's clock."""
    program = Program()
    for s in range(3):
        program.events.append(mark(f"ProfilerStep#{s}", 1000 + 2000 * s, 2990 + 2000 * s))
        for k in range(8):
            program.launch(1010 + 2000 * s + 100 * k, 50)
    for one in program.events:
        one["ts"] -= 50 * (one["cat"] == "kernel")
    found = " ".join(program.read(tmp_path).warnings)
    assert "the clocks are apart, and 12% of the GPU's time lies outside" in found and "runs ahead" not in found


def test_a_capture_that_starts_in_the_middle_of_a_step(tmp_path: Path) -> None:
    """Kernels of the first step launched before its mark, or before the capture, belong to no step."""
    program, marks = Program(), [(5000 + 10_000 * s, 14_990 + 10_000 * s) for s in range(2)]
    for _ in range(30):
        program.launch(0, 99, recorded=False)
    for k in range(20):
        program.launch(1000 + 100 * k, 99)
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        for k in range(50):
            program.launch(low + 100 * k, 150)
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, marks) == [(50, 7500)] * 2
    assert found.frame["step"].isna().sum() == 50 and found.facts["before_capture"]["activities"] == 30
    assert "20 rows outside the marked steps count in none" in " ".join(found.warnings)


def test_two_streams(tmp_path: Path) -> None:
    """Copies on a stream of their own run while the step before is computed: they do not begin the step."""
    program, marks = Program(), [(1000 * s, 990 + 1000 * s) for s in range(5)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        program.launch(low + 10, 50, stream=20, cat="gpu_memcpy", name="Memcpy HtoD (Pinned -> Device)")
        for k in range(20):
            program.launch(low + 20 + 40 * k, 149)
        program.launch(low + 900, 700, stream=30)
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, marks) == [(22, 3730)] * 5
    first = [program.launched[22 * s + 1][1] for s in range(5)]
    last = max(end for _, _, end in program.launched)
    assert found.facts["step_ns"] == [round(1000 * (b - a)) for a, b in zip(first, [*first[1:], last], strict=True)]


def test_two_devices(tmp_path: Path) -> None:
    program, marks = Program(), [(1000 * s, 990 + 1000 * s) for s in range(4)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        for k in range(20):
            program.launch(low + 20 + 40 * k, 149, device=k % 2)
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, marks) == [(20, 2980)] * 4
    spans = [k[1:] for k in program.launched]
    low = spans[0][0]
    high = max(end for _, end in spans)
    assert sum(found.facts["busy_ns"]) == pytest.approx(1000 * union(spans, low, high), rel=1e-6)


@pytest.mark.parametrize("ahead", [1, 3])
def test_graphs_whose_launches_are_not_recorded(tmp_path: Path, ahead: int) -> None:
    """Their ids show between which calls they were launched."""
    program, marks = Program(), [(10_000 * s, 9990 + 10_000 * s) for s in range(4)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        program.launch(low + 10, 100)
        program.number += 1
        for _ in range(30):
            program.launch(low + 30, 200 * ahead, recorded=False, number=program.number)
        program.launch(low + 5000, 100)
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, marks) == [(32, 200 + 6000.0 * ahead)] * 4
    assert "120 of 128 GPU activities" in " ".join(found.warnings)


def test_without_ids_the_order_on_the_stream_tells(tmp_path: Path) -> None:
    program, marks = Program(), [(10_000 * s, 9990 + 10_000 * s) for s in range(3)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        program.launch(low + 10, 100)
        for _ in range(30):
            program.launch(low + 30, 500, recorded=False, number=-1)
        program.launch(low + 5000, 100)
    assert by_step(program.read(tmp_path)) == expected(program, marks) == [(32, 15_200)] * 3


def test_a_step_that_launches_nothing(tmp_path: Path) -> None:
    program, marks = Program(), [(10_000 * s, 9990 + 10_000 * s) for s in range(4)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        for k in range(0 if s == 1 else 40):
            program.launch(low + 100 * k, 300)
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, marks) == [(40, 12_000)] * 3
    assert found.facts["steps"] == 4 and min(found.facts["step_ns"]) >= 0
    whole = program.launched[-1][2] - program.launched[0][1]
    assert sum(found.facts["step_ns"]) == round(1000 * whole)


def test_marks_on_the_gpu_only(tmp_path: Path) -> None:
    program = Program()
    for s in range(3):
        low = 10_000 * s
        for k in range(40):
            program.launch(low + 100 * k, 300)
        mine = program.launched[-40:]
        program.events.append(event("gpu_user_annotation", f"ProfilerStep#{s}", mine[0][1], mine[-1][2], pid=0, tid=7))
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, [(10_000 * s, 10_000 * s + 9999) for s in range(3)])
    assert "the marks of the profiler on the GPU" in " ".join(found.warnings)


@pytest.mark.parametrize("thread", ["launches", "autograd's"])
def test_marks_on_another_thread_than_the_launches(tmp_path: Path, thread: str) -> None:
    program, marks = Program(), [(10_000 * s, 9990 + 10_000 * s) for s in range(3)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high, tid=1))
        for k in range(40):
            tid = 2 if thread == "launches" or k >= 20 else 1
            if k == 20 and tid == 2:
                program.events += node("AddBackward0", low + 100 * k, low + 9000, seq=5, tid=2)
            program.launch(low + 100 * k + 10, 300, tid=tid)
    assert by_step(program.read(tmp_path)) == expected(program, marks) == [(40, 12_000)] * 3


def test_a_last_step_that_is_cut_off(tmp_path: Path) -> None:
    """The kernels that its queue still held are missing: the step has what is there, and its end."""
    program, marks = Program(), [(10_000 * s, 9990 + 10_000 * s) for s in range(4)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        for k in range(40):
            program.launch(low + 100 * k, 300)
    lost = [e for e in program.events if e["cat"] == "kernel"][-8:]
    program.events = [e for e in program.events if e not in lost]
    program.launched = program.launched[:-8]
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, marks) == [(40, 12_000)] * 3 + [(32, 9600)]
    assert found.facts["busy_ns"] == [12_000_000] * 3 + [9_600_000]


def test_marks_with_other_work_between_them(tmp_path: Path) -> None:
    """An evaluation between two steps belongs to none, and the step before it ends with its own work."""
    program, marks = Program(), [(0, 9990), (50_000, 59_990), (60_000, 69_990)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"ProfilerStep#{s}", low, high))
        for k in range(40):
            program.launch(low + 100 * k, 300)
        for k in range(20 if s == 0 else 0):
            program.launch(20_000 + 100 * k, 500)
    found = program.read(tmp_path)
    assert by_step(found) == expected(program, marks) == [(40, 12_000)] * 3
    assert max(found.facts["step_ns"]) < 13_000_000 and found.facts["busy_ns"] == [12_000_000] * 3


def loop(program: Program, steps: int, loads: int = 1, optimizers: int = 1, evaluation: int = 0, **more: Any) -> None:
    """A training loop without marks; `more`: `zero` loads, `wrap` names a range around each step."""
    at = 0.0
    for s in range(steps):
        begin = at
        for _ in range(loads):
            program.events.append(mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 1000))
            program.events.append(op("aten::mm", at + 1100, at + 1200))
            program.launch(at + 1110, 400)
            at += 2000
        for _ in range(optimizers):
            program.events.append(mark("Optimizer.step#SGD.step", at, at + 300))
            program.launch(at + 50, 100)
            at += 400
        if more.get("wrap"):
            program.events.append(mark(more["wrap"].format(s), begin, at))
        at += 100
    for _ in range(evaluation):
        program.events.append(mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 1000))
        program.events.append(op("aten::mm", at + 1100, at + 1200))
        program.launch(at + 1110, 400)
        at += 2000


LOOPS: dict[str, tuple[dict[str, Any], str]] = {
    "a batch, a step": ({}, "one call of the DataLoader to the next, with one optimizer step"),
    "two optimizers": ({"optimizers": 2}, "with 2 optimizer steps"),
    "accumulated gradients": ({"loads": 4}, "each has 4 calls of the DataLoader and an optimizer step"),
    "an evaluation behind": ({"evaluation": 3}, "one call of the DataLoader to the next"),
    "no loader": ({"loads": 0}, "from one optimizer step to the next"),
    "an own range": ({"loads": 2, "wrap": "train batch {}"}, "ranges train batch #, each around one optimizer step"),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_evident_steps_without_marks(tmp_path: Path, kind: str) -> None:
    program, (how, words) = Program(), LOOPS[kind]
    loop(program, 6, **how)
    found = program.read(tmp_path)
    loads, optimizers = how.get("loads", 1), how.get("optimizers", 1)
    assert found.facts["steps"] == 6
    assert by_step(found) == [(loads + optimizers, 400 * loads + 100 * optimizers)] * 6
    assert "the trace marks no steps: 6 are evident" in " ".join(found.warnings) and words in " ".join(found.warnings)


def test_batches_of_an_inference_are_its_steps(tmp_path: Path) -> None:
    program = Program()
    loop(program, 0, evaluation=5)
    assert by_step(program.read(tmp_path)) == [(1, 400)] * 5


def test_steps_by_the_names_of_a_programs_own_ranges(tmp_path: Path) -> None:
    program, marks = Program(), [(10_000 * s, 9990 + 10_000 * s) for s in range(3)]
    for s, (low, high) in enumerate(marks):
        program.events.append(mark(f"train step {s}", low, high))
        for k in range(10):
            program.launch(low + 100 * k, 300)
    assert by_step(program.read(tmp_path)) == expected(program, marks)


def test_uneven_loops_show_no_steps(tmp_path: Path) -> None:
    program = Program()
    loop(program, 1, loads=2)
    found = program.read(tmp_path)
    assert found.facts["steps"] == 1 and "the whole capture counts as one step" in " ".join(found.warnings)
