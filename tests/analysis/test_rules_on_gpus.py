"""What rules say of steps on a GPU: single slow operators, first uses, replays, and remedies that fit the kernel."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit.analysis.report.analyse import analyse
from perfkit.analysis.results import Finding
from tests.support.analysis import examples, faults
from tests.support.analysis.faults import named


def test_a_slow_operator_is_told_once_and_by_what_it_does() -> None:
    """A gap due to one operator is not launch-bound, the other gaps are; work on the CPU plans nothing."""
    gaps = [faults.gap("dispatch", 400), faults.gap("Python", 100)]
    on_the_host = {**faults.planning(100), "operator": "aten::uniform_", "launches": 0}
    held = [faults.planning(250), on_the_host, {**faults.planning(15), "operator": "aten::cumsum"}]
    found = faults.report([faults.on_gpu(500)], 1000, None, gaps=gaps, held_by=held).findings
    slow = [f for f in found if f.name == "slow-operator"]
    assert [f.saving_ns for f in slow] == [250e3, 100e3]
    assert "plans or compiles" in slow[0].evidence and "static cache" in slow[0].remedy
    assert "on tensors of the CPU" in slow[1].evidence and "workers" in slow[1].remedy
    [idle] = [f for f in found if f.name == "gpu-idle"]
    assert idle.time_ns == pytest.approx(150e3) and "Python 10 % and dispatch 5.0 %" in idle.evidence


def _first_use(driver: float, dispatch: float, launches: int = 0, **more: Any) -> list[Finding]:
    """Findings of a step with an operator of 60 ms, most of it in one CUDA call if the gaps say so."""
    gaps = [faults.gap("driver", driver), faults.gap("dispatch", dispatch), faults.gap("launch", 5e3)]
    one = {"operator": "aten::empty_strided", "launches": launches, "ns": 60e6, "count": 1, "longest_ns": 60e6}
    calls = [("cudaFree", 70e6), ("cudaDeviceGetStreamPriorityRange", 58e6), ("cudaStreamCreateWithFlags", 30e6)]
    api = [{"name": name, "count": 1, "ns": ns} for name, ns in calls]
    return faults.report([faults.on_gpu(500)], 100e3, None, gaps=gaps, held_by=[one], api=api, **more).findings


def test_an_operator_inside_cuda_calls_initialises_the_gpu_and_is_told_once() -> None:
    """A CUDA tensor that is the first of a process: the work is not on the CPU, and later steps have none of it."""
    found = _first_use(driver=60e3, dispatch=10e3)
    [slow] = [f for f in found if f.name == "slow-operator"]
    [idle] = [f for f in found if f.name == "gpu-idle"]
    assert "CUDA calls that launch nothing, cudaDeviceGetStreamPriorityRange above all (58.00 ms)" in slow.evidence
    assert "initialises" in slow.evidence and "CPU" not in slow.evidence
    assert "Profile later steps" in slow.remedy and "DataLoader" not in slow.remedy
    assert "alone took" not in idle.evidence and idle.time_ns == pytest.approx(15e6)


def test_calls_of_every_step_initialise_nothing() -> None:
    """Work of each step, and time of unknown cause, are not a first use of a GPU."""
    [repeated] = [f for f in _first_use(driver=60e3, dispatch=10e3, steps=2) if f.name == "slow-operator"]
    assert "inside CUDA calls" in repeated.evidence and "initialises" not in repeated.evidence
    assert "once, before the steps" in repeated.remedy
    [either] = [f for f in _first_use(driver=60e3, dispatch=50e3) if f.name == "slow-operator"]
    assert "on tensors of the CPU, or inside CUDA calls" in either.evidence
    [plans] = [f for f in _first_use(driver=60e3, dispatch=10e3, launches=3) if f.name == "slow-operator"]
    assert "plans or compiles it first. Most of that time is inside CUDA calls" in plans.evidence


def test_a_call_that_the_gaps_hold_shows_that_a_process_began() -> None:
    """Neither one that allocates, which another finding reports, nor one that is longer than all waiting."""
    api = [{"name": name, "count": 1, "ns": ns} for name, ns in (("cudaMalloc", 90e6), ("cudaLaunchKernel", 50e6))]
    for waits, told in ((60e3, True), (40e3, False)):
        found = named(faults.report([faults.on_gpu(500)], 100e3, None, gaps=[faults.gap("launch", waits)], api=api))
        assert ("cudaLaunchKernel alone took 50.00 ms" in found["gpu-idle"].evidence) is told
        assert "cudaMalloc" not in found["gpu-idle"].evidence


def test_an_operator_that_launches_for_every_sample_plans_nothing() -> None:
    """`im2col` on a GPU has a kernel for each sample: 512 launches, 4.4 µs apart."""
    one = {"operator": "aten::im2col", "launches": 512, "ns": 2.25e6, "count": 1, "longest_ns": 2.25e6}
    gaps = [faults.gap("dispatch", 2300)]
    found = faults.report([faults.on_gpu(1200)], 4000, None, gaps=gaps, held_by=[one]).findings
    [found] = [f for f in found if f.name == "slow-operator"]
    assert "512 kernels a call, one by one, and the GPU idles 4.39 µs before each" in found.evidence
    assert "plans" not in found.evidence
    assert "one kernel" in found.remedy and "sdpa_kernel" not in found.remedy


def test_the_lines_of_a_slow_operator_are_those_that_call_it() -> None:
    """In a trace of an engine three products planned for 5.5 ms, and had the lines of all 75 ms of idle time."""
    other = dict.fromkeys(
        ("host_ns", "python_ns", "between_ns", "loading_ns", "kernel_ns", "wait_ns", "waits", "kernels"), 0
    )
    known = {**other, "exact": True, "code": "", "library": ""}
    lines = [
        {"text": "b.py:2 in b", "file": "b.py", "line": 2, "function": "b", "idle_ns": 700e3, **known},
        {"text": "a.py:1 in a", "file": "a.py", "line": 1, "function": "a", "idle_ns": 250e3, **known},
    ]

    def slow(operator: str, dispatch: float) -> list[tuple[str, float]]:
        rows = [{**faults.on_gpu(100), "line": "a.py:1 in a"}]
        held = {**faults.planning(250), "operator": operator}
        gaps = [faults.gap("dispatch", dispatch)]
        made = faults.report(rows, 100 + dispatch, None, gaps=gaps, held_by=[held], lines=lines)
        return [(line.file, line.share) for line in named(made)["slow-operator"].lines]

    assert slow("aten::linear", 950) == [("a.py", 1.0)]
    assert slow("my::operator", 950) == []  # without kernels: which lines call it is not known
    assert [file for file, _ in slow("my::operator", 260)] == ["b.py", "a.py"]  # all idle time is its own


def test_a_step_of_replays_is_not_told_to_take_a_cuda_graph() -> None:
    rows = [faults.on_gpu(40) for _ in range(10)]
    gaps = [faults.gap("launch", 600)]
    for replayed, told in ((9, "Take more of the step into one graph"), (4, "torch.compile(mode='reduce-overhead')")):
        made = faults.report(rows, 1000, None, gaps=gaps, replays={"launches": 1, "activities": replayed})
        assert told in named(made)["gpu-idle"].remedy


def test_what_a_step_leaves_beside_a_slow_operator_bounds_its_other_gaps() -> None:
    """The profiler lengthens what lies between short operators, and not 250 µs of planning: of 150 µs outside them 50
    are left without it, and the two findings together save no more than the step's time outside its kernels."""
    gaps = [faults.gap("dispatch", 300), faults.gap("Python", 100)]
    table = faults.made([faults.on_gpu(500)], 900, gaps=gaps, held_by=[faults.planning(250)])
    source = examples.run(examples.backend("eager", 0.8), tables={"eager": table})
    slow, idle = (named(analyse(source).backends[0])[name] for name in ("slow-operator", "gpu-idle"))
    assert slow.saving_ns == 250e3 and idle.saving_ns == pytest.approx(50e3)
    assert "takes 50.00 µs beyond its kernels and slow operators" in idle.evidence


def test_fp32_products_of_a_gpu_that_wait_for_something_else_are_promised_nothing() -> None:
    """An LSTM's kernels, at 2 % of the fp32 roof, were said to save 75 % of the step in bf16."""
    rate = faults.CEILINGS.compute["matrix_fp32"]
    for share, told in ((0.9, True), (0.02, False)):
        row = faults.gpu("gemm", 1000, "matmul", by="lstm", moved=1e3, flop_matrix_fp32=share * 1e-3 * rate)
        assert ("fp32-matmul" in named(faults.report([row], 1000))) is told


@pytest.mark.parametrize(
    ("family", "shapes", "says", "advice"),
    [
        ("elementwise", "fp32[64×64]", "Elementwise kernels", "torch.compile), so that"),
        ("elementwise", "complex64[64×64]", "Elementwise kernels", "generates no code for complex ones"),
        ("fft", "complex64[64×64]", "FFT kernels", "products of small primes"),
        ("fused", "fp32[64×64]", "Fused kernels", "max-autotune"),
    ],
)
def test_the_remedy_fits_the_numbers_and_the_kind(family: str, shapes: str, says: str, advice: str) -> None:
    row = faults.gpu("kernel", 1000, family, by="mul", moved=10e6, shapes=shapes)
    below = named(faults.report([row], 1000))["below-roof"]
    assert below.title.startswith(says) and advice in below.remedy


def test_products_of_good_sizes_are_not_told_to_grow() -> None:
    for shapes, grow in (("bf16[16384×768], bf16[768×3072]", False), ("bf16[32×768], bf16[768×50257]", True)):
        row = faults.gpu("nvjet", 1000, "matmul", by="mm", flop_matrix_bf16=1e9, moved=1e3, shapes=shapes)
        below = named(faults.report([row], 1000))["below-roof"]
        assert ("larger products" in below.remedy) is grow and ("power limit" in below.remedy) is not grow


def test_slow_attention_is_not_told_to_take_larger_products() -> None:
    row = faults.gpu("flash_fwd", 1000, "attention", by="scaled_dot_product_attention", tflop=0.1e-3, moved=1e3)
    below = named(faults.report([row], 1000))["below-roof"]
    assert "sdpa_kernel" in below.remedy and "larger products" not in below.remedy
