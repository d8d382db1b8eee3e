"""Every trace is checked before a number is made from it: sound ones pass, damaged ones are refused in a sentence."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from perfkit import table as kernel_table
from perfkit.analysis.report.rows import in_steps
from perfkit.errors import InputError
from perfkit.readers.kineto.checks import Expected
from perfkit.readers.kineto.trace import read_trace
from perfkit.readers.unusable import UnusableProfile
from tests.support.readers import damage
from tests.support.readers.traces import event, mark, op, training_step, write
from tests.support.sweeps import rest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kineto"
SOUND = sorted(path.stem.split(".")[0] for path in FIXTURES.glob("*.json.gz"))
SAMPLES = ("alexnet-2023-extid-collides", "recsys-nccl-2022-105k-events", "rocm-mi250-tiny", "triton-tiny",
           "training-2022-109k-events", "ranks/ddp.rank0", "ranks/ddp.rank1", "ranks/fsdp.rank0",
           "ranks/fsdp.rank1")  # fmt: skip
NAMES = ["times", "launches", "clock", "steps", "sum", "busy", "timed", "annotations"]
HALF = "{} of {} launches ({}) have no kernel in the trace"


def fixture(name: str) -> Path:
    return FIXTURES / f"{name}.json.gz"


def checks_of(path: Path, expected: Expected | None = None) -> dict[str, dict[str, Any]]:
    found = read_trace(path, expected=expected).facts["trace_checks"]
    assert [check["name"] for check in found] == NAMES
    return {check["name"]: check for check in found}


def refused(path: Path, expected: Expected | None = None) -> UnusableProfile:
    with pytest.raises(UnusableProfile) as caught:
        read_trace(path, expected=expected)
    assert caught.value.exit_code == 2 and str(path) in caught.value.message and caught.value.hint
    assert len(caught.value.checks) == len(NAMES)
    return caught.value


@pytest.mark.parametrize("name", SOUND)
def test_every_check_of_a_sound_trace_holds(name: str) -> None:
    found = checks_of(fixture(name))
    assert all(check["holds"] is not False for check in found.values())
    assert [name for name, check in found.items() if check["holds"] is None] == ["timed"]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_check_of_a_real_trace_holds_or_does_not_apply(samples: Path, name: str) -> None:
    found = checks_of(samples / "kineto" / f"{name}.json.gz")
    assert all(check["holds"] is not False for check in found.values())
    assert sum(check["holds"] is not None for check in found.values()) >= 5
    assert found["clock"]["holds"] and found["times"]["figure"] == 0
    said = {name: check["sentence"] for name, check in found.items() if check["sentence"]}
    if name.startswith("recsys"):  # its program does not wait for the GPU in each step, and began before the capture
        assert "614 activities of the GPU were launched before the capture (56.52 ms)" in said["launches"]
        assert "the host runs ahead" in said["steps"]
    else:
        assert not said


DAMAGES = {
    "zeroed": (damage.zeroed, "times", "106 of 106 activities of the GPU have no time"),
    "no durations": (damage.without_durations, "times", "106 of 106 activities of the GPU have no time"),
    "half lost": (damage.halved, "launches", HALF.format(51, 100, "51.0%")),
    "last half lost": (damage.cut(0.5), "launches", HALF.format(50, 100, "50.0%")),
    "all lost": (damage.cut(1.0), "launches", HALF.format(100, 100, "100.0%")),
    "3 s ahead": (damage.shifted(3), "clock", "the GPU's clock is 3.00 s ahead of the host's: 106 of 106 activities"),
    "3 s behind": (damage.shifted(-3), "clock", "the GPU's clock is 3.00 s behind the host's: 106 of 106 activities"),
    "no steps": (damage.without_own_steps, "steps", "the marks of 2 steps are missing on the host"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_trace_is_refused_by_the_check_that_it_fails(tmp_path: Path, kind: str) -> None:
    how, name, sentence = DAMAGES[kind]
    error = refused(damage.write(tmp_path / "t.json", damage.events_of(fixture("eager")), how))
    assert sentence in error.message
    failed = next(check for check in error.checks if check.holds is False)
    assert failed.name == name and failed.needed and failed.events > 0 and sentence in failed.sentence
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.checks) == (str(error), error.checks)


@pytest.mark.parametrize("how", [how for how, _, _ in list(DAMAGES.values())[:-1]], ids=list(DAMAGES)[:-1])
@pytest.mark.parametrize(
    "name", ["rocm-mi250-tiny", "triton-tiny", "alexnet-2023-extid-collides", rest("ranks/ddp.rank0")]
)
def test_damaged_samples_are_refused(samples: Path, tmp_path: Path, name: str, how: Any) -> None:
    error = refused(damage.write(tmp_path / "t.json", damage.events_of(samples / "kineto" / f"{name}.json.gz"), how))
    assert any(check.needed and check.holds is False for check in error.checks)


@pytest.mark.parametrize(("kind", "option"), [*((kind, None) for kind in DAMAGES), ("zeroed", "--json")])
def test_a_report_of_a_damaged_trace_is_a_sentence_and_no_number(
    run_cli: Any, tmp_path: Path, kind: str, option: str | None
) -> None:
    trace = damage.write(tmp_path / "t.json", damage.events_of(fixture("eager")), DAMAGES[kind][0])
    result = run_cli(["report", trace, "--out", tmp_path / "out", *filter(None, [option])])
    assert (result.rc, result.stdout) == (2, "")
    assert result.stderr.count("perfkit:") == 1 and DAMAGES[kind][2] in result.stderr.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_every_command_refuses_a_damaged_trace(run_cli: Any, tmp_path: Path) -> None:
    trace = damage.write(tmp_path / "t.json", damage.events_of(fixture("eager")), damage.zeroed)
    for command in (["compare", trace, fixture("eager")], ["trace", trace], ["baseline", "save", "x", trace]):
        result = run_cli(command, cwd=tmp_path)
        assert (result.rc, result.stdout) == (2, "") and "have no time" in result.stderr, command
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_a_trace_that_lacks_kernels_at_its_end_is_used_with_a_footnote(tmp_path: Path) -> None:
    trace = damage.write(tmp_path / "t.json", damage.events_of(fixture("eager")), damage.cut(0.05))
    found = read_trace(trace)
    launches = next(check for check in found.facts["trace_checks"] if check["name"] == "launches")
    assert launches["holds"] and launches["events"] == 4
    assert "4 of 100 launches (4.0%) at the ends of the capture have no kernel in the trace" in found.warnings


def test_a_clock_a_little_ahead_is_a_failure_that_numbers_survive(tmp_path: Path) -> None:
    """1.2 ms in steps of 45 s: idle times are reported all the same."""
    capture = [mark("ProfilerStep#1", 0, 45e6), *launched(100, 1400, 1500, 1), *launched(2200, 3400, 3500, 2)]
    found = checks_of(write(tmp_path / "t.json", capture))["clock"]
    assert found["holds"] is False and not found["needed"] and found["figure"] == 1_190_000
    trace = write(tmp_path / "t.json", [mark("ProfilerStep#1", 0, 5e3), *capture[1:]])
    assert "the GPU's clock is 1.19 ms ahead of the host's" in refused(trace).message


def launched(
    call: float, start: float, end: float, number: int, name: str = "cudaLaunchKernel", kernel: str = "k"
) -> list[Any]:
    """A launch of 10 µs, and its kernel."""
    return [
        event("cuda_runtime", name, call, call + 10, correlation=number),
        event("kernel", kernel, start, end, pid=0, tid=7, device=0, stream=7, correlation=number),
    ]


def test_a_trace_that_never_had_steps_counts_as_one(tmp_path: Path) -> None:
    trace = damage.write(tmp_path / "t.json", damage.events_of(fixture("eager")), damage.without_any_steps)
    found = read_trace(trace)
    assert found.facts["steps"] == 1 and "the whole capture counts as one step" in found.warnings[0]
    assert checks_of(trace)["steps"]["holds"] is None


def test_steps_that_perfkit_recorded_must_be_there(tmp_path: Path) -> None:
    checks = checks_of(fixture("thunder"), Expected(2, on_gpu=True))
    assert checks["steps"]["holds"] and checks["steps"]["needed"]
    assert "1 of the 3 recorded steps is missing" in refused(fixture("thunder"), Expected(3, on_gpu=True)).message
    assert "it holds 2 steps, and 1 were recorded" in refused(fixture("thunder"), Expected(1, on_gpu=True)).message
    for how in (damage.without_any_steps, lambda events: [e for e in events if "perfkit:step" not in e["name"]]):
        trace = damage.write(tmp_path / "t.json", damage.events_of(fixture("thunder")), how)
        assert "its steps are missing, and the passes inside them are there" in refused(trace).message
    assert "2 of the 2 recorded steps are missing" in refused(trace, Expected(2, on_gpu=True)).message


def test_on_a_cpu_too(tmp_path: Path) -> None:
    step = training_step()
    checks = checks_of(write(tmp_path / "t.json", step))
    assert [name for name, check in checks.items() if check["holds"]] == ["times", "steps", "sum", "busy"]
    assert [name for name, check in checks.items() if check["holds"] is None] == [
        "launches", "clock", "timed", "annotations",
    ]  # fmt: skip
    bare = write(tmp_path / "t.json", [e for e in step if not e["name"].startswith("perfkit:step")])
    assert "1 of the 1 recorded steps is missing" in refused(bare, Expected(1)).message
    for none in (0.0, -5.0):
        still = [{**e, "dur": none} if e["cat"] == "cpu_op" else e for e in step]
        assert "operators have no time" in refused(write(tmp_path / "t.json", still)).message


def test_a_run_on_a_gpu_whose_trace_knows_of_none(tmp_path: Path) -> None:
    trace = write(tmp_path / "t.json", training_step())
    error = refused(trace, Expected(1, on_gpu=True))
    assert "the run was on a GPU, and the trace holds no work of it" in error.message


def test_work_that_a_step_of_a_run_left_for_later(tmp_path: Path) -> None:
    """A run waits for the GPU in each step; anybody else's program need not."""
    events = [mark("perfkit:step:0", 0, 1000), mark("perfkit:step:1", 1000, 3000)]
    events += [*launched(100, 150, 300, 1), *launched(500, 900, 1600, 2), *launched(1200, 1700, 1800, 3)]
    trace = write(tmp_path / "t.json", events)
    assert "74% of the GPU's time lies outside" in checks_of(trace)["steps"]["sentence"]
    error = refused(trace, Expected(2, on_gpu=True))
    assert "1 of 3 activities of the GPU lie outside of the step that launched them" in error.message
    idle = [mark("perfkit:step:0", 0, 1000), mark("perfkit:step:1", 1000, 3000), *launched(100, 150, 300, 1)]
    words = "1 of the 2 recorded steps launched nothing on the GPU"
    assert words in refused(write(tmp_path / "t.json", idle), Expected(2, on_gpu=True)).message


@pytest.mark.parametrize(
    ("timed", "holds", "needed"), [(250e3, True, True), (180e3, False, False), (90e3, False, True)]
)
def test_a_timed_step_is_no_shorter_than_the_busy_time(tmp_path: Path, timed: float, holds: bool, needed: bool) -> None:
    """The GPU is busy for 200 µs of the step."""
    events = [mark("perfkit:step:0", 0, 1000), *launched(100, 150, 250, 1), *launched(300, 350, 450, 2)]
    trace, expected = write(tmp_path / "t.json", events), Expected(1, on_gpu=True, timed_ns=timed)
    if not holds and needed:
        words = "the GPU is busy for 200.0 µs of a profiled step, and a step without the profiler takes 90.00 µs"
        assert words in refused(trace, expected).message
    else:
        found = checks_of(trace, expected)["timed"]
        assert (found["holds"], found["needed"], found["figure"]) == (holds, needed, pytest.approx(200e3 / timed))


def test_waiting_for_other_ranks_is_not_held_against_the_timed_step(tmp_path: Path) -> None:
    """A collective's kernel waits for 500 µs for a rank that its profiler delays; 60 µs of it overlap the first."""
    events = [mark("perfkit:step:0", 0, 1000), *launched(100, 150, 250, 1)]
    events += launched(160, 190, 690, 2, kernel="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    found = checks_of(write(tmp_path / "t.json", events), Expected(1, on_gpu=True, timed_ns=110e3))["timed"]
    assert found["holds"] and found["figure"] == pytest.approx(100 / 110)


def test_launches_into_a_graph_and_calls_inside_calls_lack_nothing(tmp_path: Path) -> None:
    events = [mark("ProfilerStep#1", 0, 1000), event("cuda_runtime", "cudaStreamBeginCapture", 10, 12, correlation=1)]
    events += [event("cuda_runtime", "cudaLaunchKernel", 20 + i, 20.5 + i, correlation=2 + i) for i in range(20)]
    events += [event("cuda_runtime", "cudaStreamEndCapture", 60, 62, correlation=40)]
    events += [event("cuda_runtime", "cudaLaunchHostFunc", 64, 66, correlation=41)]
    events += [*launched(100, 200, 300, 50, "cudaGraphLaunch"), *launched(120, 300, 400, 51, "cuLaunchKernel")]
    events += [event("cuda_runtime", "cudaLaunchKernel", 118, 132, correlation=52)]  # around the driver's call
    found = checks_of(write(tmp_path / "t.json", events))["launches"]
    assert (found["holds"], found["events"], found["sentence"]) == (True, 0, "")


def test_copies_that_were_not_recorded_are_missed_but_not_needed(tmp_path: Path) -> None:
    events = [mark("ProfilerStep#1", 0, 1000), *launched(100, 150, 250, 1)]
    events += [
        event("cuda_runtime", "cudaMemcpyAsync", 300 + 20 * i, 310 + 20 * i, correlation=9 + i) for i in range(8)
    ]
    found = checks_of(write(tmp_path / "t.json", events))["launches"]
    assert found["holds"] is False and not found["needed"]
    assert "8 of 8 copies and fills were called and have no activity" in found["sentence"]


@pytest.mark.parametrize(("lost", "holds"), [((6, 6), True), ((6, 5), False)])
def test_fills_without_an_activity_as_many_in_every_step_lack_nothing(
    tmp_path: Path, lost: tuple[int, int], holds: bool
) -> None:
    """cuDNN's LSTM fills 0 bytes dozens of times a step: such a profile did not lose records."""
    events = []
    for number, count in enumerate(lost):
        at, first = 1000 * number, 100 * number
        events += [mark(f"ProfilerStep#{number}", at, at + 1000), *launched(at + 100, at + 150, at + 250, first)]
        calls = [(at + 300 + 20 * i, first + 10 + i) for i in range(count + 2)]
        events += [event("cuda_runtime", "cudaMemsetAsync", t, t + 5, correlation=n) for t, n in calls]
        for start, of in calls[:2]:
            events.append(event("gpu_memset", "Memset", start + 10, start + 12, pid=0, tid=7, stream=7, correlation=of))
    found = checks_of(write(tmp_path / "t.json", events))["launches"]
    assert found["holds"] is holds
    assert ("copies and fills were called" in found["sentence"]) is not holds


def test_what_is_below_the_resolution_of_an_old_trace_counts_with_no_time(tmp_path: Path) -> None:
    """In whole µs the shortest kernels have 0, which is no further off than the others' times; they ran."""
    events = [mark("ProfilerStep#1", 0, 1000), op("aten::relu", 90, 500)]
    for number in range(4):
        events += launched(100 + 20 * number, 200 + 20 * number, 210 + 20 * number, number)
    events[-1]["dur"] = 0
    found = read_trace(write(tmp_path / "t.json", events))
    assert found.frame["duration_ns"].tolist() == [10_000.0, 10_000.0, 10_000.0, 0.0]
    assert len(in_steps(found)) == 4 and found.facts["busy_ns"] == [30_000]
    said = "1 of 4 activities of the GPU last less than the µs that the trace counts in: they count with no time"
    assert said in found.warnings
    events[0]["dur"], events[2]["ts"], events[3]["ts"] = 1000.5, events[2]["ts"] + 0.25, events[3]["ts"] + 0.25
    assert "1 of 4 activities of the GPU have no time" in refused(write(tmp_path / "t.json", events)).message


def test_annotations_of_the_gpu_that_disagree(tmp_path: Path) -> None:
    events = damage.events_of(fixture("nccl-rank0"))
    moved = [{**e, "ts": e["ts"] + 50.0} if e.get("cat") == damage.MARKS else e for e in events]
    found = checks_of(damage.write(tmp_path / "t.json", moved))["annotations"]
    assert found["holds"] is False and not found["needed"] and found["events"] > 25 and found["of"] == 32


def test_a_table_of_kernels_without_times_is_broken(tmp_path: Path) -> None:
    """As perfkit itself wrote it, before traces were checked."""
    rows = [{"name": "k", "kind": "gpu_kernel", "order": i, "duration_ns": 0.0} for i in range(3)]
    with pytest.raises(InputError, match="none of its 3 kernels has a time"):
        kernel_table.build(rows)


def test_the_checks_travel_with_the_table_and_into_the_report(run_cli: Any, tmp_path: Path) -> None:
    result = run_cli(["report", fixture("eager"), "--out", tmp_path, "--json"])
    told = json.loads(result.stdout)["backends"][0]
    assert result.rc == 0 and [check["name"] for check in told["trace_checks"]] == NAMES and told["unusable"] == ""
    for name in ("report.txt", "report.md"):
        assert "Trace checks: 7 of 7 hold; timed does not apply." in (tmp_path / name).read_text().replace("\n", " ")
    assert "trace_checks" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("name", ["thunder", "streams"])
def test_a_timeline_that_perfkit_wrote_is_read_as_any_trace(run_cli: Any, tmp_path: Path, name: str) -> None:
    """It has the passes of perfkit's own captures in the profiler's steps."""
    made = tmp_path / "t.json.gz"
    assert run_cli(["trace", fixture(name), "--out", made]).rc == 0
    assert all(check["holds"] is not False for check in checks_of(made).values())
