"""Findings: each rule on cases whose saving is worked out by hand, and on real profiles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfkit import table
from perfkit.analysis.report.accounting import incomparable
from perfkit.analysis.report.analyse import analyse, analyse_table
from perfkit.analysis.results import BackendReport, Finding
from perfkit.analysis.rules import Case, Circumstances, copies, idle
from perfkit.analysis.rules.base import WORTH
from perfkit.analysis.step_results import COLLECTIVE, Exposed
from tests.support.analysis import profiles
from tests.support.analysis.examples import backend, run

KERNEL = {"name": "k", "kind": "gpu_kernel", "device": "cuda:0", "duration_ns": 100e3, "step": 0}


def trace(rows: list[dict[str, Any]], gaps: dict[str, float], step_ns: float) -> BackendReport:
    """One profiled step on a GPU: `rows` from 0 on, and gaps in ns by cause."""
    busy = step_ns - sum(gaps.values())
    facts = {
        "steps": 1, "step_ns": [step_ns], "busy_ns": [busy],
        "gaps": [{"cause": cause, "pass": None, "ns": ns, "count": 1} for cause, ns in gaps.items()],
    }  # fmt: skip
    made = table.build([{**KERNEL, "order": i, **row} for i, row in enumerate(rows)], facts=facts)
    return analyse_table(made, None, "x.parquet").backends[0]


def found(report: BackendReport) -> dict[str, Finding]:
    return {f.name: f for f in report.findings}


def gpu_idle(report: BackendReport, replays: bool = False) -> Finding:
    """Return the rule's findings in a report that was changed after it was made."""
    case = Case(report, None, None, {}, None, 1, Circumstances(replays=replays))  # type: ignore[arg-type]
    [only] = idle.GPU_IDLE.find(idle.GPU_IDLE, case)
    assert isinstance(only, Finding)
    return only


def test_the_gpu_waits_for_the_host_by_all_causes_of_the_host() -> None:
    made = trace([{"duration_ns": 400e3}], {"Python": 300e3, "dispatch": 200e3, "sync": 100e3}, 1e6)
    idle = found(made)["gpu-idle"]
    assert idle.saving_ns == 500e3 and idle.share == 0.5
    assert idle.title == "The GPU waits for the host during 50 % of the profiled step"
    assert "Python 30 % and dispatch 20 %" in idle.evidence
    assert found(made)["sync"].saving_ns == 100e3


def test_without_the_profiler_less_can_be_saved() -> None:
    made = trace([{"duration_ns": 400e3}], {"Python": 450e3, "sync": 150e3}, 1e6)
    assert made.accounting is not None
    made.accounting.timed_step_ns = 600e3  # 200 µs outside the kernels, of 600 in the profiled step
    found = gpu_idle(made)
    assert found.saving_ns == pytest.approx(150e3) and found.share == pytest.approx(0.25)
    assert "takes 200.0 µs beyond its kernels" in found.evidence
    assert "sets the pace" not in found.evidence  # two thirds of the timed step are kernels


@pytest.mark.parametrize(("python", "sync", "paces"), [(450e3, 150e3, True), (150e3, 450e3, False)])
def test_where_the_host_sets_the_pace_shorter_kernels_alone_save_nothing(
    python: float, sync: float, paces: bool
) -> None:
    made = trace([{"duration_ns": 200e3}], {"Python": python, "sync": sync}, 800e3)
    assert made.accounting is not None
    made.accounting.timed_step_ns = 600e3  # 400 µs outside the kernels
    assert ("shorter kernels alone make it no shorter" in gpu_idle(made).evidence) is paces


def test_a_step_that_replays_graphs_is_not_told_to_replay_graphs() -> None:
    """The profiled step launched kernel by kernel: of its 600 µs outside the kernels the timed one has 40."""
    made = trace([{"duration_ns": 400e3}], {"Python": 450e3, "sync": 150e3}, 1e6)
    assert made.accounting is not None
    made.accounting.timed_step_ns = 440e3
    found = gpu_idle(made, replays=True)
    assert found.saving_ns == pytest.approx(40e3) and found.share == pytest.approx(1 / 11)
    assert found.title == "No kernel runs during 9.1 % of a step that replays CUDA graphs"
    assert "reduce-overhead" not in found.remedy and "Python" not in found.evidence


def test_the_profilers_own_share_is_nobodys_to_save() -> None:
    made = trace([{"duration_ns": 400e3}], {"Python": 300e3, "profiler": 300e3}, 1e6)
    assert made.accounting is not None
    made.accounting.timed_step_ns = 600e3
    assert gpu_idle(made).saving_ns == pytest.approx(200e3)  # all of the timed step outside its kernels


def test_what_saves_little_is_not_said() -> None:
    assert trace([{"duration_ns": 990e3}], {"Python": 10e3}, 1e6).findings == []


def test_copies_count_by_what_nothing_covers() -> None:
    copy = {"name": "Memcpy HtoD (Pageable -> Device)", "kind": "memcpy", "start_ns": 0.0, "duration_ns": 300e3}
    made = trace([copy, {"start_ns": 200e3, "duration_ns": 800e3}], {}, 1e6)
    assert made.exposed == [Exposed(name=copy["name"], kind="copy", count=1, time_ns=300e3, exposed_ns=200e3)]
    [finding] = made.findings
    assert (finding.name, finding.saving_ns, finding.time_ns) == ("copies-htod", 200e3, 300e3)
    assert "pin_memory=True" in finding.remedy


@pytest.mark.parametrize(
    ("steps", "said"), [(1, "3 copies a step take"), (3, "1 copy a step takes"), (4, "0.75 copies")]
)
def test_copies_are_counted_by_step(steps: int, said: str) -> None:
    """There were `1 copies a step`, and three copies in eight steps were `0 copies`."""
    name = "Memcpy HtoD (Pageable -> Device)"
    copy = {**KERNEL, "name": name, "kind": "memcpy", "duration_ns": 500e3}
    rows = [{**copy, "order": at, "start_ns": at * 1e6, "step": min(at, steps - 1)} for at in range(3)]
    facts = {"steps": steps, "step_ns": [1e6] * steps, "busy_ns": [500e3] * steps, "gaps": []}
    made = analyse_table(table.build(rows, facts=facts), None, "x.parquet").backends[0]
    assert found(made)["copies-htod"].title.startswith(f"{name}: {said}")


def test_collectives_count_by_what_nothing_covers() -> None:
    ring = {"name": "ncclDevKernel_AllReduce", "family": "collective", "start_ns": 500e3, "duration_ns": 500e3}
    made = trace([{"start_ns": 0.0, "duration_ns": 900e3, "stream": 7}, {**ring, "stream": 9}], {}, 1e6)
    [finding] = made.findings
    assert (finding.name, finding.saving_ns) == ("collectives", 100e3)


def test_a_collective_saves_no_more_than_the_step_without_a_profiler_leaves() -> None:
    """Two ranks under a profiler: collectives of 30.88 ms in steps that take 22.98 ms without it, and 12 ms beside."""
    one = Exposed(name="collectives", kind=COLLECTIVE, count=8, time_ns=30.88e6, exposed_ns=29e6)
    account = SimpleNamespace(timed_step_ns=22.98e6, profiled_step_ns=41e6, kernel_ns=41e6)
    case = SimpleNamespace(report=SimpleNamespace(accounting=account))
    saving, said = copies._without_profiler(case, one)
    assert saving == pytest.approx(22.98e6 - (41e6 - 29e6)) and "takes 10.98 ms beyond its other kernels" in said
    account.timed_step_ns = 41e6
    assert copies._without_profiler(case, one) == (29e6, "")


def test_tiny_kernels_are_counted_together() -> None:
    made = trace([{"name": f"k{i % 2}", "duration_ns": 2e3} for i in range(100)], {"other": 800e3}, 1e6)
    [finding] = made.findings
    assert finding.name == "tiny-kernels" and finding.count == 100 and finding.saving_ns == 200e3
    assert finding.title == "100 kernels a step are shorter than 5 µs: 100 % of kernel time"


def test_kinds_of_kernel_below_their_roof() -> None:
    """The product of `examples.ROWS` takes twice its roof time; the sum is at 80 %, and the exponential above."""
    report = analyse(run(backend("eager", 0.4))).backends[0]
    [product] = [f for f in report.findings if f.name == "below-roof"]
    assert product.title == "Matmul kernels reach 50 % of their roof, the fp32 matrix units"
    saving = 10e3 * 0.40 / 0.42  # what the profiler adds, kernels on a CPU have too
    assert product.saving_ns == pytest.approx(saving) and product.share == pytest.approx(saving / 0.4e6)
    assert (
        "fp32 matmul, 100.0 GFLOP/s" in product.evidence
        and "mm of fp32[4] at 50 %, 10.00 µs above it" in product.evidence
    )


def test_no_finding_saves_more_than_the_step_takes() -> None:
    """Kernels of the profile take 360 µs of a step of 420; a step without the profiler, 380."""
    report = analyse(run(backend("eager", 0.38))).backends[0]
    assert report.findings and all(f.saving_ns <= 380e3 and f.share <= 1 for f in report.findings)


def test_a_profiled_step_whose_kernels_take_longer_than_a_step_did_more() -> None:
    """Steps grew from 2 calls of a model to 40: "the profiled step took 2471 % longer", as the profiler's overhead."""
    report = analyse(run(backend("eager", 0.02))).backends[0]
    assert report.accounting is not None and report.accounting.timed_step_ns is None
    [warning] = [w for w in report.warnings if "not compared" in w]
    assert "did more, or the machine was busy: its kernels alone take 360.0 µs" in warning
    assert not any("longer than one without it" in w for w in report.warnings)


def test_cpu_time_says_whether_a_longer_step_did_other_work() -> None:
    """Steps of 2 ms were timed, and one of 40 ms was profiled: its kernels alone take 36."""
    facts = {"step_ns": [40e6], "busy_ns": [36e6], "gaps": []}
    busy, other = "the machine was busy (", "the profiled step did other work ("
    for worked, said in ((2.2e6, busy), (39e6, other), (10e6, f"{other[:-2]} and {busy}")):
        why = incomparable({**facts, "cpu_ns": [2e6, worked]}, [2e6] * 5)
        assert why.startswith(said), why
    on_gpu = incomparable({**facts, "cpu_ns": [2e6, 39e6], "devices": ["cuda:0"]}, [2e6] * 5)  # its host may spin
    assert on_gpu.startswith("the profiled step did more, or the machine was busy: ")


def test_a_wrong_backend_gets_no_advice() -> None:
    wrong = analyse(run(backend("eager", 100), backend("fast", 10, ok=False))).backends[1]
    assert wrong.kernels and wrong.findings == []


def test_the_largest_saving_stands_first_and_each_has_a_number() -> None:
    for report in (*map(profiles.ncu, ("full.ncu-rep", "basic.ncu-rep", "metrics.ncu-rep")), profiles.kineto("eager")):
        savings = [f.saving_ns for f in profiles.backend(report).findings]
        assert savings == sorted(savings, reverse=True) and all(s > 0 for s in savings)
        assert all(f.title and f.evidence and f.remedy and f.share >= WORTH
                   for f in profiles.backend(report).findings)  # fmt: skip


def test_a_real_report_names_its_troubles_in_order() -> None:
    named = [(f.name, f.kernels) for f in profiles.backend(profiles.ncu("full.ncu-rep")).findings]
    assert named == [
        ("uncoalesced", ["copy_strided"]),
        ("occupancy", ["smem_limited"]),
        ("few-blocks", ["reduce_one_block"]),
    ]


def test_a_report_that_does_not_tell_why_says_so() -> None:
    first = profiles.backend(profiles.ncu("metrics.ncu-rep")).findings[0]
    assert first.name == "below-roof" and "does not say why: `ncu --set full`" in first.remedy


def test_real_traces() -> None:
    eager = profiles.backend(profiles.kineto("eager"))
    idle = found(eager)["gpu-idle"]
    assert eager.accounting is not None
    assert idle.saving_ns < eager.accounting.profiled_step_ns - eager.accounting.kernel_ns
    assert idle.share == pytest.approx(0.92, abs=0.01)
    nccl = profiles.backend(profiles.kineto("nccl-rank0"))
    exposed = {e.kind: e for e in nccl.exposed}
    assert 0 <= (exposed["collective"].exposed_ns or 0) <= exposed["collective"].time_ns


def test_nvidias_advice_keeps_its_name_and_its_own_estimates() -> None:
    report = profiles.backend(profiles.ncu("full.ncu-rep"))
    by_kernel = {a.kernel: a for a in reversed(report.advice)}
    assert by_kernel["copy_strided"].title == "Uncoalesced Global Accesses"
    assert by_kernel["copy_strided"].speedup == pytest.approx(0.8803, abs=1e-4)
    assert "fma_chains" not in by_kernel and "tiny" not in by_kernel  # near its roof; hardly any time
    assert all(0.05 <= a.speedup <= 1 and a.scope == "global" and "@" not in a.text for a in report.advice)
    assert not any("Compression" in a.title for a in report.advice)
