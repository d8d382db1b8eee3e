"""Why a GPU idles: traces made by hand, each with one cause planted, and the amounts by cause that must come out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from perfkit.readers.kineto import checks
from perfkit.readers.kineto.trace import read_trace
from perfkit.table import KernelTable
from tests.support.readers.traces import Event, event, mark, node, op, write

MAIN, AUTOGRAD, OTHER = 1, 2, 3


def call(start: float, end: float, name: str = "cudaLaunchKernel", number: int = -1, tid: Any = MAIN) -> Event:
    """A CUDA call; `number` is its correlation."""
    return event("cuda_runtime", name, start, end, tid=tid, correlation=number)


def kernel(start: float, end: float, number: int, stream: int = 7) -> Event:
    return event(
        "kernel", f"kernel{number}", start, end, pid=0, tid=stream, device=0, stream=stream, correlation=number
    )


def overhead(name: str, start: float, end: float) -> Event:
    """A record of CUPTI's, which names no thread."""
    return event("overhead", name, start, end, pid=-1, tid=0)


def read(path: Path, events: list[Event], **more: Any) -> KernelTable:
    return read_trace(write(path / "t.json", events), **more)


def idle(path: Path, events: list[Event], **more: Any) -> dict[str, float]:
    """Idle µs by cause; with busy time they must be the time of the steps."""
    facts = read(path, events, **more).facts
    total = sum(gap["ns"] for gap in facts["gaps"])
    assert total + sum(facts["busy_ns"]) == sum(facts["step_ns"])
    assert total == sum(entry["ns"] for entry in facts["idle"]) == sum(s["idle_ns"] for s in facts["per_step"])
    assert all(gap["ns"] > 0 for gap in facts["gaps"])
    return {entry["cause"]: entry["ns"] / 1e3 for entry in facts["idle"]}


def step(*events: Event | list[Event], end: float = 100) -> list[Event]:
    """A step from 0 to `end` of plain torch.profiler."""
    found = [mark("ProfilerStep#1", 0, end)]
    for one in events:
        found += one if isinstance(one, list) else [one]
    return found


def test_operators_launches_and_the_way_to_the_gpu(tmp_path: Path) -> None:
    """Python until the operator, dispatch until the call, the call itself, and what the launch takes to arrive."""
    events = step(op("aten::mul", 10, 40, [[4], [4]]), call(30, 35, number=1), kernel(38, 100, 1))
    assert idle(tmp_path, events) == {"Python": 10, "dispatch": 20, "launch": 5, "latency": 3}


def test_a_kernel_that_starts_before_its_call_returns_leaves_no_latency(tmp_path: Path) -> None:
    events = step(op("aten::mul", 0, 40, [[4], [4]]), call(30, 38, number=1), kernel(36, 100, 1))
    assert idle(tmp_path, events) == {"dispatch": 30, "launch": 6}


def test_allocation_by_operators_and_by_the_driver(tmp_path: Path) -> None:
    events = step(
        op("aten::empty", 0, 40, [[]]), call(10, 35, "cudaMalloc"), op("aten::mul", 40, 60, [[4], [4]]),
        call(50, 52, number=1), kernel(52, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"allocation": 15, "CUDA allocation": 25, "dispatch": 10, "launch": 2}


def test_calls_that_wait_and_calls_that_do_neither(tmp_path: Path) -> None:
    """A wait counts while nothing runs; asking for a device's properties is the driver's time."""
    events = step(
        op("aten::mul", 0, 10, [[4], [4]]), call(0, 5, number=1), kernel(5, 30, 1),
        op("aten::item", 10, 50, [[1]]), call(12, 45, "cudaStreamSynchronize"),
        call(50, 58, "cudaDeviceGetAttribute"), call(58, 60, number=2), kernel(60, 100, 2),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"launch": 5 + 2, "sync": 15 + 5, "driver": 8}


def test_a_blocking_copy_is_a_launch_until_it_runs_and_a_wait_after_that(tmp_path: Path) -> None:
    copy = event("gpu_memcpy", "Memcpy HtoD", 20, 40, pid=0, tid=7, device=0, stream=7, correlation=1)
    events = step(
        op("aten::copy_", 0, 60, [[4], [4]]), call(10, 55, "cudaMemcpy", 1), copy, call(58, 60, number=2),
        kernel(60, 100, 2),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 10 + 3, "launch": 10 + 2, "sync": 15}


def test_autograds_thread_counts_with_its_operators_and_the_engine_between_them(tmp_path: Path) -> None:
    """The thread of the steps has no event meanwhile: it waits for the backward pass."""
    first = [*node("AddBackward0", 10, 30, tid=AUTOGRAD), op("aten::mul", 15, 25, [[4], [4]], tid=AUTOGRAD)]
    second = [*node("MulBackward0", 50, 90, tid=AUTOGRAD), op("aten::mul", 60, 80, [[4], [4]], tid=AUTOGRAD)]
    launch = [call(70, 75, number=1, tid=AUTOGRAD), kernel(75, 100, 1)]
    events = step(op("aten::ones_like", 0, 5, [[1]]), first, second, launch)
    # From 5 to 10 the program calls the engine. The nodes' own time is 5 + 5 and 10 µs, between them pass 20.
    assert idle(tmp_path, events) == {"dispatch": 5 + 10 + 10, "Python": 5, "autograd": 10 + 20 + 10, "launch": 5}


def test_the_pass_of_a_gap_is_that_of_the_event_in_it(tmp_path: Path) -> None:
    events = step(
        op("aten::ones_like", 0, 5, [[1]]), node("AddBackward0", 10, 30, tid=AUTOGRAD),
        node("MulBackward0", 50, 90, tid=AUTOGRAD), call(70, 75, number=1, tid=AUTOGRAD), kernel(75, 100, 1),
    )  # fmt: skip
    gaps = {(g["cause"], g["pass"]): g["ns"] / 1e3 for g in read(tmp_path, events).facts["gaps"]}
    assert gaps == {
        ("dispatch", None): 5, ("Python", None): 5, ("autograd", "backward"): 60, ("launch", "backward"): 5,
    }  # fmt: skip


def test_a_launch_of_the_program_waits_for_the_backward_pass_before_it(tmp_path: Path) -> None:
    """The optimizer's first kernel ends the stretch; until 60 its thread waits for autograd's."""
    events = step(
        op("aten::ones_like", 0, 5, [[1]]), node("AddBackward0", 10, 60, tid=AUTOGRAD),
        op("aten::view", 20, 50, [[4]], tid=AUTOGRAD), op("aten::_foreach_add_", 70, 95), call(80, 85, number=1),
        kernel(85, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 5 + 30 + 10, "Python": 5 + 10, "autograd": 20, "launch": 5}


def test_autograds_thread_waits_for_the_program_between_two_backward_passes(tmp_path: Path) -> None:
    """The program runs an operator between the two nodes: the second belongs to another call of the engine."""
    events = step(
        node("AddBackward0", 0, 20, tid=AUTOGRAD), op("aten::mean", 30, 50, [[4]]),
        node("MulBackward0", 60, 90, tid=AUTOGRAD), call(70, 75, number=1, tid=AUTOGRAD), kernel(75, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"autograd": 20 + 10, "Python": 10 + 10, "dispatch": 20, "launch": 5}


def test_a_backward_pass_on_the_threads_of_the_steps_has_an_engine_too(tmp_path: Path) -> None:
    events = step(
        node("AddBackward0", 10, 30), node("MulBackward0", 40, 90), call(70, 75, number=1), kernel(75, 100, 1)
    )
    assert idle(tmp_path, events) == {"Python": 10, "autograd": 20 + 10 + 30, "launch": 5}


def test_a_hook_in_the_backward_pass_is_python(tmp_path: Path) -> None:
    hook = event("python_function", "hook.py(3): scale", 32, 48, tid=AUTOGRAD)
    events = step(
        node("AddBackward0", 10, 30, tid=AUTOGRAD), hook, node("MulBackward0", 50, 90, tid=AUTOGRAD),
        call(70, 75, number=1, tid=AUTOGRAD), kernel(75, 100, 1), op("aten::mul", 0, 10, [[4]]),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 10, "autograd": 20 + 2 + 2 + 20, "Python": 16, "launch": 5}


def test_a_third_thread_counts_while_it_works_and_the_thread_of_the_steps_when_it_does_not(tmp_path: Path) -> None:
    events = step(
        op("aten::mul", 0, 30, [[4], [4]]), op("aten::copy_", 40, 70, [[4], [4]], tid=OTHER),
        call(60, 65, "cudaMemcpyAsync", 1, tid=OTHER), kernel(65, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 30 + 20, "Python": 10, "launch": 5}


def test_everything_in_a_data_loader_is_loading(tmp_path: Path) -> None:
    events = step(
        mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 50), op("aten::stack", 10, 30, [[4]]),
        op("aten::mul", 50, 70, [[4], [4]]), call(60, 65, number=1), kernel(65, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"data": 50, "dispatch": 10, "launch": 5}


def test_a_collective_on_cpus_is_waited_for_by_a_thread_without_events(tmp_path: Path) -> None:
    """As of gloo: the range is on a thread of its own, and the program's has none until the range ends."""
    events = step(
        op("c10d::allreduce_", 0, 10), mark("gloo:all_reduce", 5, 60, tid=OTHER), op("aten::mul", 70, 90, [[4]]),
        call(80, 85, number=1), kernel(85, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 10 + 10, "another rank": 50, "Python": 10, "launch": 5}


def test_a_collective_on_cpus_beside_operators_is_waited_for_by_nobody(tmp_path: Path) -> None:
    events = step(
        op("c10d::allreduce_", 0, 10), mark("gloo:all_reduce", 5, 75, tid=OTHER), op("aten::mul", 70, 90, [[4]]),
        call(80, 85, number=1), kernel(85, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 10 + 10, "Python": 60, "launch": 5}


def test_waiting_for_another_rank_inside_a_kernel_is_no_idle_time(tmp_path: Path) -> None:
    """NCCL's kernel waits on the GPU. The part of its range outside calls is the way to the launch."""
    events = step(
        op("record_param_comms", 0, 30), mark("nccl:all_reduce", 10, 30), call(20, 25, number=1),
        event("kernel", "ncclDevKernel_AllReduce", 25, 100, pid=0, tid=17, device=0, stream=17, correlation=1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 20, "launch": 5}


def test_the_profilers_buffers_hold_up_the_thread_that_asks_for_them(tmp_path: Path) -> None:
    events = step(
        op("aten::mul", 0, 70, [[4], [4]]), call(10, 60, number=1), overhead("Activity Buffer Request", 12, 55),
        kernel(62, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 10, "launch": 2 + 5, "profiler": 43, "latency": 2}


def test_the_profilers_buffers_of_a_thread_that_launches_nothing_hold_up_no_other(tmp_path: Path) -> None:
    """A watchdog's call asks for the buffer; the program goes on meanwhile."""
    events = step(
        call(8, 9, "cudaEventQuery", tid=OTHER), overhead("Activity Buffer Request", 10, 55),
        op("aten::mul", 5, 30, [[4], [4]]), op("aten::mul", 40, 70, [[4], [4]]), call(60, 65, number=1),
        kernel(65, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"Python": 5 + 10, "dispatch": 25 + 20, "launch": 5}


def test_a_thread_that_stands_still_in_an_operator_waits_for_the_lock_of_the_one_in_the_profiler(
    tmp_path: Path,
) -> None:
    events = step(
        call(8, 9, "cudaEventQuery", tid=OTHER), overhead("Activity Buffer Request", 10, 55),
        op("record_param_comms", 0, 70), call(20, 22, "cudaEventRecord"), call(60, 65, number=1), kernel(65, 100, 1),
    )  # fmt: skip
    # From 0 to 20 it went on; from 22 to the end of CUPTI's work, 33 of 45 µs, it did nothing.
    assert idle(tmp_path, events) == {"dispatch": 20 + 5, "driver": 2, "profiler": 33, "launch": 5}


def test_overheads_of_the_driver_are_not_the_profilers(tmp_path: Path) -> None:
    events = step(
        op("aten::mul", 0, 70, [[4], [4]]), call(10, 60, number=1), overhead("Lazy Function Loading", 12, 55),
        kernel(60, 100, 1),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 10, "launch": 50}


def test_what_was_launched_before_the_gpu_fell_idle_is_queued(tmp_path: Path) -> None:
    """The host is far ahead, in Python: the hand-over from kernel to kernel is not its fault."""
    events = step(
        op("aten::mul", 0, 10, [[4], [4]]), call(0, 2, number=1), call(4, 6, number=2), kernel(2, 40, 1),
        kernel(43, 100, 2),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"launch": 2, "queued": 3}


def test_what_another_stream_held_back_waits_for_it(tmp_path: Path) -> None:
    """Stream 8 is empty, and its kernel starts when that of stream 7 has ended."""
    events = step(
        op("aten::mul", 0, 10, [[4], [4]]), call(0, 2, number=1), call(3, 4, "cudaStreamWaitEvent"),
        call(4, 6, number=2), kernel(2, 40, 1), kernel(44, 100, 2, stream=8),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"launch": 2, "stream wait": 4}


def test_between_the_kernels_of_a_graph_nobody_launches(tmp_path: Path) -> None:
    events = step(
        call(0, 10, "cudaGraphLaunch", 1), kernel(12, 40, 1), kernel(45, 60, 1), kernel(61, 100, 1),
        op("aten::mul", 20, 90, [[4]]),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"launch": 10, "latency": 2, "queued": 6}


def test_the_first_launch_of_a_kernel_loads_its_code(tmp_path: Path) -> None:
    events = step(
        node("AccumulateGrad", 0, 100, tid=AUTOGRAD),
        call(5, 80, "hipLaunchKernel", 1, tid=AUTOGRAD),
        kernel(86, 100, 1),
    )
    assert idle(tmp_path, events) == {"autograd": 5, "launch": 75, "latency": 6}


def test_the_end_of_a_step_belongs_to_the_launch_of_the_next(tmp_path: Path) -> None:
    """After the last kernel of a step the host waits for it, then runs Python; what it launches is the next step's."""
    events = [
        *step(op("aten::mul", 0, 20, [[4]]), call(5, 10, number=1), kernel(10, 60, 1)),
        call(30, 70, "cudaDeviceSynchronize"), mark("ProfilerStep#2", 100, 200), op("aten::mul", 120, 150, [[4]]),
        call(130, 135, number=2), kernel(140, 200, 2),
    ]  # fmt: skip
    assert idle(tmp_path, events) == {
        "dispatch": 5 + 10, "launch": 5 + 5, "sync": 10, "Python": 30 + 20, "latency": 5,
    }  # fmt: skip


def test_a_launch_outside_the_trace_leaves_the_thread_of_the_steps_to_ask(tmp_path: Path) -> None:
    events = step(op("aten::mul", 0, 40, [[4]]), call(10, 30, "cudaDeviceSynchronize"), kernel(40, 100, 99))
    assert idle(tmp_path, events) == {"dispatch": 20, "sync": 20}


def test_a_thread_of_which_the_trace_holds_nothing_but_the_step_gives_no_cause(tmp_path: Path) -> None:
    launch = [op("aten::mul", 40, 70, [[4]], tid=OTHER), call(60, 65, number=1, tid=OTHER), kernel(65, 100, 1)]
    assert idle(tmp_path, step(*launch)) == {"other": 40, "dispatch": 20, "launch": 5}


def test_a_trace_of_the_gpu_alone_has_no_steps_and_no_gaps(tmp_path: Path) -> None:
    facts = read(tmp_path, [kernel(0, 10, 1), kernel(20, 30, 2)]).facts
    assert facts["gaps"] == [] and facts["idle"] == [] and facts["step_ns"] == []


def test_recording_is_estimated_where_the_host_held_the_gpu_up_and_nowhere_else(tmp_path: Path) -> None:
    """Eight events begin while the host is late, with the mark of the step, and two during a kernel."""
    events = step(
        [op("aten::view", 10 * i, 10 * i + 8, [[4]]) for i in range(5)], op("aten::mul", 50, 64, [[4], [4]]),
        call(60, 62, number=1), call(62, 64, number=2), op("aten::view", 66, 67, [[4]]), kernel(62, 80, 1),
        kernel(85, 100, 2),
    )  # fmt: skip
    assert idle(tmp_path, events) == {"dispatch": 5 * 8 + 10, "Python": 10, "launch": 2, "queued": 5}
    found = idle(tmp_path, events, event_cost_ns=800.0)
    assert found["profiler"] == pytest.approx(8 * 0.8, abs=0.003) and found["queued"] == 5
    assert found["dispatch"] == pytest.approx(50 * (1 - 6.4 / 62), abs=0.001)
    table = read(tmp_path, events, event_cost_ns=800.0)
    assert table.facts["profiler_estimate"] == {"event_cost_ns": 800.0, "events": 8}


@pytest.mark.parametrize("seed", range(20))
def test_causes_add_up_whatever_the_threads_do(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads nest at random, kernels start at random, before their launches too."""
    monkeypatch.setattr(checks, "refuse", lambda path, found: None)  # the sum holds in traces that are refused as well
    rng = random.Random(seed)
    names = ("aten::mul", "aten::empty", "aten::item", "record_param_comms", "AddBackward0", "aten::view")
    events = [mark("ProfilerStep#1", 0, 400), mark("ProfilerStep#2", 405, 800)]
    number = 0
    for tid in (MAIN, AUTOGRAD, OTHER):
        at = rng.uniform(0, 50)
        while at < 780:
            length = rng.uniform(1, 40)
            events.append(op(rng.choice(names), at, at + length, [[4], [4]], tid=tid))
            if rng.random() < 0.6:
                begin, number = at + length * rng.uniform(0, 0.5), number + 1
                events.append(call(begin, begin + length * 0.3, number=number, tid=tid))
                if rng.random() < 0.8:
                    start = begin + rng.uniform(-2, 60)
                    events.append(kernel(start, start + rng.uniform(0, 20), number, stream=rng.randrange(3)))
            at += length * rng.choice((1, 1, 1.5, 3))
        events.append(overhead("Buffer Flush", at := rng.uniform(0, 700), at + rng.uniform(0, 90)))
        events.append(mark("gloo:all_reduce", at := rng.uniform(0, 700), at + rng.uniform(0, 90), tid=9))
    assert set(idle(tmp_path, events, event_cost_ns=rng.choice((None, 500.0)))) - {"other"}


@pytest.mark.parametrize("name", ["ddp.rank0", "ddp.rank1", "fsdp.rank0", "fsdp.rank1"])
def test_nearly_all_idle_time_of_two_ranks_has_a_cause(name: str, samples: Path) -> None:
    facts = read_trace(samples / "kineto" / "ranks" / f"{name}.json.gz").facts
    step_ns, gaps = sum(facts["step_ns"]), facts["gaps"]
    assert sum(g["ns"] for g in gaps) + sum(facts["busy_ns"]) == step_ns
    assert sum(g["ns"] for g in gaps if g["cause"] == "other") <= 0.001 * step_ns


def test_a_first_launch_that_loads_code_is_most_of_a_first_step(samples: Path) -> None:
    """`hipLaunchKernel` of the first gradient's accumulation takes 6.5 of 9.3 ms, on autograd's thread."""
    facts = read_trace(samples / "kineto" / "rocm-mi250-tiny.json.gz").facts
    share = {entry["cause"]: entry["ns"] / sum(facts["step_ns"]) for entry in facts["idle"]}
    assert share["launch"] == pytest.approx(0.714, abs=0.001) and "other" not in share


def test_an_operator_that_plans_for_long_is_named(tmp_path: Path) -> None:
    """Its own time while the GPU waits: not that of its call, nor of what it calls, nor while a kernel runs."""
    events = step(
        op("aten::mul", 0, 20, [[4], [4]]), call(5, 10, number=1), kernel(10, 500, 1),
        op("aten::plan", 100, 4600, [[4]]), op("aten::empty", 200, 300, [[]]), call(4500, 4510, number=2),
        kernel(4600, 4700, 2), op("aten::uniform_", 4700, 6800, [[4]]),
        op("aten::mul", 6800, 6820, [[4], [4]]), call(6805, 6815, number=3), kernel(6815, 7000, 3), end=7000,
    )  # fmt: skip
    held = read(tmp_path, events).facts["held_by"]
    assert held == [
        {"operator": "aten::plan", "launches": True, "ns": 4_000_000, "count": 1, "longest_ns": 4_000_000},
        {"operator": "aten::uniform_", "launches": False, "ns": 2_100_000, "count": 1, "longest_ns": 2_100_000},
    ]


def test_the_first_activity_of_a_stream_may_wait_for_work_that_the_trace_lacks(tmp_path: Path) -> None:
    """An excerpt of a server made of one gap of 494 ms an idle GPU, a list made a tensor and a copy that waits."""
    events = [mark("ProfilerStep#0", 0, 10_000), call(10, 20, number=1), kernel(25, 30, 1, stream=2)]
    events += [call(22, 32, number=2), kernel(5020, 5030, 2), op("aten::copy_", 35, 5045)]
    events += [call(40, 5040, "hipMemcpyWithStream", 3), kernel(5030, 5035, 3), call(5050, 5060, number=4)]
    events += [kernel(9055, 9060, 4)]  # which waits as long, but is not a first one
    found = idle(tmp_path, events)
    assert found["earlier work"] == 4988 and found["latency"] == pytest.approx(3995, abs=10)
    waits = read(tmp_path, events).facts["host_waits"]
    assert [(w["operator"], w["idle_ns"]) for w in waits] == [("aten::copy_", 4_020_000)]  # after it, from 5035 on
