"""Whole runs: speed with correctness, MFU, the verdict, and runs with missing parts."""

from __future__ import annotations

import msgspec
import pytest

from perfkit.analysis.report.analyse import analyse, analyse_any
from perfkit.analysis.results import Report
from perfkit.run_folder import BackendRun
from tests.support.analysis import profiles
from tests.support.analysis.examples import backend, ceilings, kernel_table, run


def test_speed_up_and_mfu_of_correct_backends() -> None:
    report = analyse(run(backend("eager", 100), backend("fast", 50)))
    eager, fast = report.backends
    assert eager.speedup is None
    assert fast.speedup is not None
    assert fast.speedup.value == pytest.approx(2)
    assert fast.speedup.low < 2 < fast.speedup.high
    assert eager.step is not None and eager.step.value == pytest.approx(100e6) and eager.step.samples == 10
    assert eager.samples_per_second == pytest.approx(80)
    assert eager.step_flop == 6e9
    assert eager.mfu == pytest.approx(6e9 / 0.1 / 100e9)
    assert eager.mfu_ceiling == "the measured fp32 matmul ceiling (100.0 GFLOP/s)"


def test_a_wrong_backend_gets_no_speed_and_stands_first() -> None:
    report = analyse(run(backend("eager", 100), backend("fast", 10, ok=False)))
    wrong = report.backends[1]
    assert (wrong.speedup, wrong.mfu, wrong.status) == (None, None, "wrong")
    assert report.verdict[0] == "fast is WRONG: logits differ. Its speed means nothing and is not compared."
    assert "fastest" not in " ".join(report.verdict)
    assert report.verdict[1].startswith("A step takes 100.0 ms (95 % interval")


def test_results_that_were_not_checked_get_no_speed_either() -> None:
    report = analyse(run(backend("eager", 100), backend("fast", 10, correctness=None)))
    assert report.backends[1].speedup is None
    assert "fast" not in " ".join(report.verdict)


def test_an_untimed_reference_is_compared_with_nobody() -> None:
    report = analyse(run(backend("eager", 100, timed=False, samples_ns=[]), backend("compile", 80), tables={}))
    assert report.backends[1].speedup is None
    assert report.verdict[0] == "A step takes 80.00 ms (95 % interval 79.56–80.44) in compile."


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([80e6], "80.00 ms (timed once)"),
        ([80e6, 90e6, 81e6], "81.00 ms (range of 3 80.00–90.00)"),
        ([80e6, 90e6, 81e6, 82e6, 83e6], "82.00 ms (95 % interval 80.00–90.00)"),
    ],
)
def test_few_steps_have_no_interval(samples: list[float], said: str) -> None:
    report = analyse(run(backend("compile", 80, samples_ns=samples), tables={}))
    assert report.verdict[0] == f"A step takes {said} in compile."


def test_a_wrong_eager_is_no_measure() -> None:
    report = analyse(run(backend("eager", 100, ok=False), backend("compile", 80)))
    assert report.backends[1].speedup is None


def test_a_run_names_no_winner_but_what_a_step_took_and_how_to_know() -> None:
    """However far apart the steps of one process each are: what a process brings with it is not in their intervals."""
    said = analyse(run(backend("slow", 150), backend("eager", 100), backend("fast", 50))).verdict[0]
    assert said == (
        "In this run a step took 50.00 ms in fast, 100.0 ms in eager and 150.0 ms in slow. Whether the difference "
        "holds: `perfkit compare toy --backend eager,fast,slow -B 2 --preset tiny`."
    )


def test_the_command_that_a_run_names_asks_for_the_same_work() -> None:
    source = run(backend("eager", 100), backend("fast", 50))
    source.manifest.settings = msgspec.structs.replace(
        source.manifest.settings, workload="my model.py", preset="one", dtype="bf16", device="cuda",
        sequence_length=16, training=False, dimensions={"layers": 4}, recompute=True, executors=("nvfuser", "torch"),
    )  # fmt: skip
    assert (
        analyse(source)
        .verdict[0]
        .endswith(
            "`perfkit compare 'my model.py' --backend eager,fast -B 2 -T 16 --preset one --dim layers=4 --device cuda "
            "--dtype bf16 --recompute --inference --executors nvfuser,torch`."
        )
    )


def test_processes_of_one_program_are_no_sides_of_a_comparison() -> None:
    source = run(backend("program", 100), backend("program-rank1", 110))
    for process in source.manifest.backends:
        process.own = True
    assert analyse(source).verdict[0] == ("In this run a step took 100.0 ms in program and 110.0 ms in program-rank1.")


def test_the_verdict_says_where_the_time_goes_and_what_bounds_it() -> None:
    verdict = analyse(run(backend("eager", 100))).verdict
    assert verdict[1] == (
        "In eager the kernel time goes to forward (61 %) and backward (39 %), by kind of kernel to elementwise (67 %) "
        "and other (28 %); no kernel runs during 14 % of the profiled step, most of it Python (9.5 %)."
    )
    assert verdict[2].startswith(
        "Its kernels run at 85 % of what this machine's ceilings allow; reaching them would save 50.00 µs"
    )
    assert verdict[2].endswith("of which 40.00 µs in add of fp32[4], now at 80 % of memory bandwidth.")
    assert len(verdict) == 3


def test_headroom_is_of_the_profiled_step_where_the_profiler_lengthens_the_kernels() -> None:
    """The report said that the roof would save 1.57 ms of a step of 0.83 ms: both true, of different steps."""
    verdict = analyse(run(backend("eager", 0.35))).verdict
    assert "reaching them would save 50.00 µs at most of the 420.0 µs that the profiled step takes" in verdict[2]


def test_a_sum_of_zeros_that_lacks_kernels_is_unknown() -> None:
    """In backward `exp` moves nothing, and of `my::op` neither FLOP nor bytes are known."""
    (eager,) = analyse(run(backend("eager", 100))).backends
    forward, backward = eager.passes
    assert (forward.flop, forward.bytes, forward.flop_known_ns) == (2e6, 8.04e6, forward.time_ns)
    assert (backward.flop, backward.flop_known_ns) == (1e6, pytest.approx(backward.time_ns * 40 / 140))
    assert (backward.bytes, backward.bandwidth, backward.intensity) == (None, None, None)


def test_failed_and_unavailable_backends_are_named_with_their_reasons() -> None:
    report = analyse(
        run(
            backend("eager", 100),
            BackendRun(name="compile", status="failed", reason="the compiler died."),
            BackendRun(name="thunder", status="unavailable", reason="lightning-thunder is not installed."),
            tables={"eager": kernel_table()},
        )
    )
    assert "compile failed: the compiler died." in report.verdict
    assert "thunder is unavailable here: lightning-thunder is not installed." in report.verdict
    assert [b.status for b in report.backends] == ["ok", "failed", "unavailable"]
    assert report.backends[1].kernels == []


def test_the_profiled_step_stands_beside_the_timed_one() -> None:
    account = analyse(run(backend("eager", 0.4))).backends[0].accounting
    assert account is not None
    assert account.timed_step_ns == pytest.approx(400e3)
    assert account.profiler_overhead == pytest.approx(420 / 400 - 1)


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([0.4e6], "only one step was timed"),
        ([10e3, 20e3, 400e3, 900e3], "the steps are uneven: profiled ones took 4"),
        ([800e3, 810e3, 820e3], "the profiled step took 48% less than the timed one, so that was not yet warm"),
    ],
)
def test_a_timed_step_that_says_nothing_about_the_profiled_one_bounds_no_saving(samples: list[float], why: str) -> None:
    """A loader's uneven steps: 11 ms of waiting saved "at most 957 µs", 58 % of a step that was timed once."""
    report = analyse(run(backend("program", 1, samples_ns=samples)))
    [program] = report.backends
    assert any("of which savings are: " in warning and why in warning for warning in program.warnings)
    assert report.verdict[0].endswith(" Savings are of the profiled step, 420.0 µs: the two do not compare.")
    account = program.accounting
    assert account is not None and account.timed_step_ns is account.profiler_overhead is account.plain_step_ns is None
    [overhead] = [f for f in program.findings if f.name == "overhead"]
    assert overhead.saving_ns == pytest.approx(55e3) and overhead.share == pytest.approx(55 / 420)


def test_without_ceilings_nothing_is_judged_and_the_report_says_so() -> None:
    source = run(backend("eager", 100), ceilings=None, problems={"": ["the run has no ceilings.json"]})
    report = analyse(source)
    eager = report.backends[0]
    assert (eager.efficiency, eager.headroom_ns, eager.mfu, report.roofs) == (None, None, None, [])
    assert report.warnings == ["the run has no ceilings.json"]
    assert eager.counted_flop == 3e6  # what the model knows stays


@pytest.mark.parametrize("content", [{"bandwidth": "x"}, {}, {**msgspec.to_builtins(ceilings()), "bandwidth": []}])
def test_damaged_ceilings_are_a_warning(content: dict[str, object]) -> None:
    report = analyse(run(backend("eager", 100), ceilings=content))
    assert report.backends[0].efficiency is None
    assert len(report.warnings) == 1 and "ceilings" in report.warnings[0]


def test_no_ceiling_for_the_precision_means_no_mfu() -> None:
    source = run(backend("eager", 100))
    source.manifest.settings = msgspec.structs.replace(source.manifest.settings, dtype="bf16")
    assert analyse(source).backends[0].mfu is None


def test_problems_of_a_backend_stand_at_that_backend() -> None:
    report = analyse(run(backend("eager", 100), tables={}, problems={"eager": ["its table is damaged"]}))
    assert report.backends[0].warnings == ["its table is damaged"]
    assert report.backends[0].step is not None


def test_an_unfinished_run_says_so() -> None:
    source = run(backend("eager", 100))
    source.manifest.complete = False
    assert "the run was stopped before it was complete" in analyse(source).warnings


def test_a_run_without_a_profile_still_reports_speed() -> None:
    report = analyse(run(backend("eager", 100), backend("fast", 50), tables={}))
    assert report.backends[1].speedup is not None
    assert report.backends[1].passes == [] and report.backends[1].accounting is None


def test_the_report_survives_json() -> None:
    report = analyse(run(backend("eager", 100), backend("fast", 10, ok=False)))
    data = msgspec.json.encode(report)
    assert b"NaN" not in data
    again = msgspec.json.decode(data, type=Report)
    assert again.verdict == report.verdict and again.backends[0].kernels == report.backends[0].kernels


def test_a_bare_profile() -> None:
    report = analyse_any(kernel_table(), "somewhere/my.parquet")
    assert (report.title, report.settings, report.backends[0].name) == ("Kernel table my", None, "my")
    assert report.backends[0].timed is False and report.backends[0].step is None
    assert report.verdict[0].startswith("In my the kernel time goes to forward")


def test_operators_of_a_gpu_trace_hold_all_its_kernel_time() -> None:
    found = profiles.backend(profiles.kineto("compiled"))

    assert found.operators[0].key == "linear"  # of `aten::mm`
    assert "no operator" in [g.key for g in found.operators]  # this trace does not say what its Triton kernels serve
    assert sum(g.time_ns for g in found.operators) == pytest.approx(found.kernel_ns)
    assert sum(g.share for g in found.operators) == pytest.approx(1)
    assert [g.time_ns for g in found.operators] == sorted((g.time_ns for g in found.operators), reverse=True)
