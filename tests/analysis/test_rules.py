"""Every rule finds the fault planted for it, with the saving worked out by hand, and nothing in its healthy twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.analysis import tensors
from perfkit.analysis.report.analyse import analyse_any, analyse_table
from perfkit.analysis.results import BackendReport
from perfkit.analysis.rules import OF_COUNTERS, RULES, by_name
from perfkit.readers import read
from perfkit.readers.kineto.trace import read_trace
from perfkit.render import sentences
from tests.support.analysis import faults, profiles
from tests.support.analysis.faults import named
from tests.support.readers.traces import event, mark, op, write

# fp32 products are in every hand-made step and are a fault on this machine: only their own case is about them.
ALWAYS = "fp32-matmul"


@pytest.mark.parametrize("rule", faults.FAULTS)
def test_a_planted_fault_is_found_by_its_rule(rule: str) -> None:
    planted, _, saving_us = faults.FAULTS[rule]
    found = named(planted())
    assert rule in found
    finding = found[rule]
    if saving_us is not None:
        assert finding.saving_ns == pytest.approx(saving_us * 1e3, rel=1e-3)
    assert finding.title and finding.evidence and finding.remedy == (by_name()[rule].remedy or finding.remedy)
    assert 0.02 <= finding.share <= 1


@pytest.mark.parametrize("rule", faults.FAULTS)
def test_a_healthy_step_has_no_finding(rule: str) -> None:
    _, healthy, _ = faults.FAULTS[rule]
    assert set(named(healthy())) - ({ALWAYS} if rule != ALWAYS else set()) == set()


@pytest.mark.parametrize("rule", faults.FAULTS)
def test_a_planted_fault_is_found_by_no_other_rule(rule: str) -> None:
    """But for rules that say the same of the step as a whole."""
    beside = {
        "graph-breaks": {"overhead"},
        "small-copies": {"tiny-kernels", "copies-htod"},  # they are all
    }
    found = set(named(faults.FAULTS[rule][0]()))
    assert found - {rule, ALWAYS, "below-roof"} <= beside.get(rule, set())


def test_only_what_bounds_the_saving_is_called_the_most_that_can_be_saved() -> None:
    """The kernel's time for fresh pages is measured; keeping them was seen to save several times that."""
    unbounded = {rule for rule in faults.FAULTS if not named(faults.FAULTS[rule][0]())[rule].bounded}
    assert unbounded == {"fresh-pages"}
    pages, product = (named(faults.FAULTS[rule][0]())[rule] for rule in ("fresh-pages", ALWAYS))
    assert "This takes 100.0 µs, 10 % of the step; fixing it may save more." in sentences.finding(pages, "step")[0]
    assert "Saves at most" in sentences.finding(product, "step")[0]


def test_lists_are_no_overhead_of_the_framework() -> None:
    report = faults.FAULTS["list-to-tensor"][0]()
    assert report.accounting is not None
    assert [(gap.cause, gap.time_ns) for gap in report.accounting.gaps if gap.time_ns] == [("lists", 200e3)]
    assert "index 200.0 µs" in named(report)["list-to-tensor"].evidence


def test_the_hosts_lead_is_told() -> None:
    assert "median of 7.00 µs" in named(faults.FAULTS["gpu-idle"][0]())["gpu-idle"].evidence


def test_a_chain_names_its_kernels() -> None:
    evidence = named(faults.FAULTS["elementwise-chain"][0]())["elementwise-chain"].evidence
    assert "forward add → gelu → mul" in evidence and "20.00 MB of intermediates" in evidence


def test_launches_between_the_kernels_of_a_chain_count() -> None:
    rows = [faults.cpu(name, 10, shapes=faults.BIG) for name in ("add", "mul", "sub")]
    [finding] = [f for f in faults.report(rows, 60, between_us=5).findings if f.name == "elementwise-chain"]
    assert finding.saving_ns == pytest.approx(10e3)


def test_of_a_compiled_run_dynamos_reasons_are_told() -> None:
    compiled = {**faults.GRAPHS, "recompilations": faults.AGAIN}
    report = faults.of_run([faults.product(800)], 1000, faults._machine(4), compiler=compiled)
    again = named(report)["recompilation"]
    assert "1 × in 10 steps, for 40.00 ms" in again.title
    assert again.saving_ns == 0  # no profiled step holds it; whether a timed one does nobody knows
    assert "No profiled step holds it." in sentences.finding(again, "step")[0]
    assert "forward: size mismatch at index 0" in again.evidence


def test_what_cannot_be_judged_is_said() -> None:
    without = faults.report([faults.product()], 1000, None)
    why = {u.rule: u.why for u in without.unjudged}
    assert "no ceilings say" in why["fp32-matmul"] and "neither the machine's cores" in why["idle-threads"]
    bare = faults.report([faults.cpu("add", 100), faults.cpu("mul", 100)], 200, None)
    assert "record_shapes=True" in {u.rule: u.why for u in bare.unjudged}["elementwise-chain"]


def test_kernels_that_a_larger_finding_explains_are_not_told_again() -> None:
    found = [f.name for f in faults.FAULTS["compare-with-all"][0]().findings]
    assert found.count("below-roof") == 0


def test_the_size_that_is_no_multiple_of_16_bytes_is_named_with_what_would_be() -> None:
    planted, _, _ = faults.FAULTS["unaligned-product"]
    found = named(planted())
    assert set(found) == {"unaligned-product"}  # being below its roof is not a second finding
    evidence = found["unaligned-product"].evidence
    assert "No multiple of 8: 50257; padded: 50304." in evidence
    assert "the profile's other bf16 products reach 4.00 TFLOP/s" in evidence


def test_shapes_are_read_back() -> None:
    assert tensors.shapes("fp32[64×1], int64[], (bf16[3]") == (("fp32", (64, 1)), ("int64", ()), ("bf16", (3,)))
    assert tensors.broadcast("fp32[64×1×1], int64[10]") == (64, 1, 10)
    assert tensors.broadcast("fp32[3], fp32[4]") is None and tensors.broadcast("") is None


def test_every_rule_has_its_texts_and_a_name_of_its_own() -> None:
    """A finding and a reason have the name and the remedy of their rule: nothing else can name one."""
    assert len(by_name()) == len(RULES), "two rules have one name"
    assert {"below-roof", "gpu-idle", "uncoalesced", "sync", "copies-htod"} <= by_name().keys()
    for rule in RULES:
        assert all((rule.summary, rule.what, rule.recognised, rule.estimate, rule.remedies, rule.example)), rule.name
        assert len(rule.remedy) < sentences.SENTENCE, f"a report would cut {rule.name}'s remedy"
    assert all(rule.explain for rule in OF_COUNTERS)


REAL = {
    "eager": {"gpu-idle", "tiny-kernels"},
    "eager-stack": {"gpu-idle", "tiny-kernels"},
    "compiled": {"gpu-idle", "tiny-kernels", "below-roof"},
    "graph": {"gpu-idle", "tiny-kernels", "sync"},
    "streams": {"gpu-idle", "fp32-matmul"},
    "nccl-rank0": {"gpu-idle", "collectives"},
}


@pytest.mark.parametrize("name", REAL)
def test_what_is_found_in_real_traces_of_an_h200(name: str) -> None:
    """Small models on a fast GPU wait for the host; large products on two streams only where a step begins."""
    assert set(named(profiles.backend(profiles.kineto(name)))) == REAL[name]


# In other people's traces: what two training jobs of 2022 really wait for.
OTHERS = {
    # The host is far ahead.
    "recsys-nccl-2022-105k-events": {
        "copies-dtod",
        "collectives",
        "copies-htod",
        "below-roof",  # without their fp32 products, which save little: collectives overlap them
    },
    "training-2022-109k-events": {"collectives", "gpu-idle", "elementwise-chain", "copies-htod", "unaligned-product"},
}


def test_a_first_step_and_a_step_without_ranges_are_told(samples: Path) -> None:
    """Three traces of others: CUDA's start takes 30 s in one, and two do not explain most of the step."""
    reports = {}
    for name in ("alexnet-2023-extid-collides", "rocm-mi250-tiny", "triton-tiny"):
        path = samples / "kineto" / f"{name}.json.gz"
        reports[name] = analyse_any(read(path), path).backends[0]
    first = {f.title.split(" ")[0]: f for f in reports["alexnet-2023-extid-collides"].findings}
    start = "cudaDeviceGetStreamPriorityRange above all (29.93 s): the first use of a GPU"
    assert start in first["aten::empty_strided"].evidence and "Profile later" in first["aten::empty_strided"].remedy
    assert not any("29.93 s" in f.evidence for f in first.values() if f.name != "slow-operator")
    untold = {name: {u.rule: u.why for u in report.unjudged}.get("gpu-idle") for name, report in reports.items()}
    assert untold["triton-tiny"] == "the profile does not show what the host did in > 99 % of the step"
    assert untold["rocm-mi250-tiny"] is untold["alexnet-2023-extid-collides"] is None
    (first_use,) = [f for f in reports["rocm-mi250-tiny"].findings if "hipLaunchKernel" in f.title]
    assert first_use.share > 0.7


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_found_in_traces_of_others(name: str, samples: Path) -> None:
    path = samples / "kineto" / f"{name}.json.gz"
    assert set(named(analyse_any(read(path), path).backends[0])) == OTHERS[name]


def gpu_step(path: Path, kernel_us: float, launch_us: float) -> BackendReport:
    """A trace of 30 kernels, each with a small copy before it, launched one after the other by one thread."""
    events, free = (
        [mark("perfkit:pass:forward", 1, 60 * launch_us)],
        0.0,
    )
    for i in range(60):
        at = 2 + i * launch_us
        copy = i % 2 == 0
        name, length = ("Memcpy HtoD (Pageable -> Device)", 2.0) if copy else ("elementwise_kernel", kernel_us)
        call = "cudaMemcpyAsync" if copy else "cudaLaunchKernel"
        begin = max(free, at + 8)
        free = begin + length
        events += [
            op("aten::to" if copy else "aten::mul", at, at + 7, [[256], [256]]),
            event("cuda_runtime", call, at + 2, at + 6, correlation=i),
            event("gpu_memcpy" if copy else "kernel", name, begin, free, pid=0, tid=7, device=0, stream=7,
                  correlation=i, **({"bytes": 1024} if copy else {})),
        ]  # fmt: skip
    events += [
        mark("perfkit:step:0", 0, free + 20),
        event("cuda_runtime", "cudaDeviceSynchronize", 60 * launch_us + 4, free + 10),
    ]
    return analyse_table(read_trace(write(path / "t.json", events)), None, path / "t.json").backends[0]


def test_a_launch_bound_step_with_small_copies_by_a_trace_made_by_hand(tmp_path: Path) -> None:
    """Each launch takes 10 µs, and its work 2 or 3: the GPU is idle for most of the time."""
    found = named(gpu_step(tmp_path, kernel_us=3, launch_us=10))
    assert {"gpu-idle", "small-copies", "copies-htod", "tiny-kernels"} == set(found)
    assert found["small-copies"].count == 30 and found["gpu-idle"].share > 0.6
    assert "The host's lead" in found["gpu-idle"].evidence


def test_a_gpu_bound_step_has_none(tmp_path: Path) -> None:
    """With kernels of 400 µs the host runs ahead, and neither idle time nor copies cost anything to speak of."""
    assert set(named(gpu_step(tmp_path, kernel_us=400, launch_us=10))) == set()


def test_a_call_that_differs_in_every_step_did_not_wait() -> None:
    """Strides, which shapes do not show, make it slow each time."""
    assert "unequal-calls" not in named(faults._steps([[10] * 9 + [310]] * 3))


def test_of_kernels_that_waited_the_usual_time_is_held_against_the_roof() -> None:
    """Calls of 40 µs at a quarter of their roof, one in thirty of which took 640: 900 µs are to be saved, not 1500."""
    steps = [[40] * 10, [40] * 9 + [640], [40] * 10]
    found = named(faults._steps(steps))
    assert found["unequal-calls"].saving_ns == pytest.approx(600e3 / 3)
    assert found["below-roof"].saving_ns == pytest.approx(30 * 30e3 / 3)
    assert "reach 25 % of their roof" in found["below-roof"].title


def test_an_optimizer_of_sparse_gradients_is_not_told_to_fuse_them() -> None:
    names = ("lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "_coalesced_")
    assert "unfused-optimizer" not in named(faults._adam(names, 4, "elementwise"))  # nothing would save anything
    assert "unfused-optimizer" in named(faults._adam(names[:-1], 4, "elementwise"))


def test_python_code_of_the_programs_own_is_not_the_framework() -> None:
    """An SVD of NumPy in each step was "the framework around the kernels", to be fixed by torch.compile."""
    made = faults.report([faults.product(100)], 1000, gaps=[faults.gap("Python", 850), faults.gap("dispatch", 50)])
    own, framework = [f for f in made.findings if f.name == "overhead"]
    assert own.title.startswith("Code that calls no operator takes 85 %") and "py-spy" in own.remedy
    assert own.saving_ns == pytest.approx(850e3) and framework.saving_ns == pytest.approx(50e3)


def test_an_optimizer_with_products_has_no_fused_form() -> None:
    """The advice for Muon was fused=True, and one pass over its 17 MB of parameters was said to move 524 MB."""
    rows = [faults.cpu(name, 25, "elementwise", moved=2e6, **{"pass": "optimizer"}) for name in ("mul", "add_") * 15]
    product = {**faults.product(200), "pass": "optimizer"}
    gaps = [faults.gap("dispatch", 300, "optimizer")]
    found = named(faults.report([faults.product(4000), product, *rows], 5300, gaps=gaps))["unfused-optimizer"]
    assert "multiplies matrices" in found.evidence and "One pass" not in found.evidence
    assert "torch.compile" in found.remedy and "fused=True" not in found.remedy


def test_an_unfused_optimizer_tells_what_part_of_its_kernels_it_counts() -> None:
    """The passes table has all kernels of the optimizer: counts of steps, and work that is not elementwise."""
    step = {"pass": "optimizer"}
    parts = ("lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_") * 4
    updates = [faults.cpu(part, 25, moved=2e6, **step) for part in parts]
    counts = [faults.cpu("add_", 5, moved=8, **step) for _ in range(20)]
    for others, title in (
        (counts, "28 of the optimizer's 48 kernels a step go one parameter and operator at a time"),
        ([], "The optimizer runs 28 kernels a step, one parameter and operator at a time"),
    ):
        found = faults.report([faults.product(4000), *updates, *others], 5000)
        assert named(found)["unfused-optimizer"].title == title


def test_products_off_boundaries_save_kernel_by_kernel() -> None:
    """One takes 4 times as long as the others' rate allows, one half of that: the fast one is not a loss to set off."""
    others = faults._bf16("nvjet", 1000, 1e9)
    slow, fast = faults._bf16(faults._NARROW, 1000, 0.25e9), faults._bf16(faults._NARROW, 500, 1e9)
    found = named(faults.report([others, slow, fast], 3000, None))["unaligned-product"]
    assert found.saving_ns == pytest.approx(750e3)
    assert "Kernel by kernel, those that are as fast already (1) save nothing." in found.evidence
    alone = named(faults.report([others, slow], 3000, None))["unaligned-product"]
    assert alone.saving_ns == pytest.approx(750e3) and "as fast already" not in alone.evidence
    assert "Kernel by kernel" in by_name()["unaligned-product"].estimate


def test_counts_of_steps_are_no_unfused_optimizer_however_long_they_were_held_up() -> None:
    """A fused optimizer adds one to the count of steps of each parameter; a busy machine may interrupt any of them."""
    fused = faults.cpu("_fused_adam_", 100, "optimizer", **{"pass": "optimizer"})
    counts = [faults.cpu("add_", 50, "elementwise", moved=8, **{"pass": "optimizer"}) for _ in range(40)]
    assert "unfused-optimizer" not in named(faults.report([faults.product(4000), fused, *counts], 6100))


def test_what_kernels_on_a_cpu_save_is_of_the_step_without_the_profiler() -> None:
    """The profiled step takes twice as long as the timed one: a saving, as a share, is the same."""
    parts = ("lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_") * 8
    steps = [faults.cpu(part, 25, moved=2e6, **{"pass": "optimizer"}) for part in parts]
    rows = [faults.product(4000), *steps]
    as_long, twice = (
        named(faults.of_run(rows, 10800, {}, samples_ns=[step] * 5))["unfused-optimizer"] for step in (10.8e6, 5.4e6)
    )
    assert as_long.saving_ns == pytest.approx(2 * twice.saving_ns) and as_long.saving_ns > 0
    assert (as_long.share, as_long.evidence) == (pytest.approx(twice.share), twice.evidence)
