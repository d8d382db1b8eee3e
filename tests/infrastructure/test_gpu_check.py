"""`benchmarks/gpu_check.py`: each of its judges fails on a planted fault; and what changed since it last ran."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_check
from benchmarks.checking import files, judges, witness
from benchmarks.checking.processes import HeldRun, Process, Witness
from benchmarks.checking.witness import Launch

ROOT = gpu_check.ROOT
HOLDS = {"says": "activities have times", "holds": True, "sentence": ""}
NOT_APPLICABLE = {"says": "the timed step is no shorter than the busy time", "holds": None, "sentence": ""}
ALL_HOLD = [HOLDS] * 7
BLOCK = (128, 1, 1)


def test_which_files_changed_since_the_last_check_of_a_gpu() -> None:
    """Prints, and never fails for it: a GPU is not always at hand."""
    if not gpu_check.RESULT.is_file():
        warnings.warn("no GPU was checked yet: make gpu-check", stacklevel=1)
        return
    result = json.loads(gpu_check.RESULT.read_text())
    assert result["checks"] and result["files"], "a result names what was checked"
    changed = files.changed_since(result, ROOT)
    if changed:
        named = ", ".join(changed[:10]) + (f" and {len(changed) - 10} more" if len(changed) > 10 else "")
        warnings.warn(f"{len(changed)} files changed since make gpu-check ({result['date']}): {named}", stacklevel=1)


@pytest.mark.parametrize(
    ("value", "witnessed", "ok"),
    [
        (1000.0, 1000.5, True),
        (1000.0, 1002.0, False),
        (1002.0, 1000.0, False),
        (0.0, 1000.0, False),
        (0.0, 0.0, False),
        (None, 1000.0, False),
        (1000.0, None, False),
        (1.0, math.nan, False),
        (math.inf, math.inf, False),
    ],
)
def test_a_figure_must_be_there_and_near_its_witness(value: float | None, witnessed: float | None, ok: bool) -> None:
    found = judges.within("kernel time", value, witnessed, judges.KERNEL_TIME)
    assert found.ok is ok
    assert found.line().startswith("holds" if ok else "FAILS")


@pytest.mark.parametrize(
    ("backend", "ok"),
    [
        ({"trace_checks": [*ALL_HOLD, NOT_APPLICABLE], "unusable": ""}, True),
        ({"trace_checks": [*ALL_HOLD, {**NOT_APPLICABLE, "holds": False, "sentence": "it is"}], "unusable": ""}, False),
        ({"trace_checks": ALL_HOLD, "unusable": "kernels have no times"}, False),
        ({"trace_checks": [NOT_APPLICABLE]}, False),
        ({}, False),
    ],
)
def test_trace_checks_must_be_there_and_hold(backend: dict[str, Any], ok: bool) -> None:
    assert judges.trace_checks("gpt2 eager", backend).ok is ok


@pytest.mark.parametrize("status", ["ok", "wrong", "failed", "unavailable"])
def test_only_a_backend_that_is_right_is_correct(status: str) -> None:
    found = judges.correct("gpt2 llmc", {"status": status, "reason": ""})
    assert found.ok is (status == "ok") and found.note == ("" if status == "ok" else status)


@pytest.mark.parametrize(("coverage", "ok"), [({"counters": 0.97}, True), ({"counters": 0.5}, False), (None, False)])
def test_counters_must_be_joined(coverage: dict[str, float] | None, ok: bool) -> None:
    assert judges.joined("gpt2 eager", {"coverage": coverage}).ok is ok


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*, int)", "cunn_SoftMaxForward"),
        ("void at::native::<unnamed>::cunn_SoftMaxForward<(int)8, float>(float *, int)", "cunn_SoftMaxForward"),
        ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"),
        ("void (anonymous namespace)::elementwise_kernel_with_index<int>(int)", "elementwise_kernel_with_index"),
        ("adamw_step_v2(__nv_bfloat16 *, float)", "adamw_step_v2"),
    ],
)
def test_tools_that_write_a_kernel_differently_mean_the_same(name: str, function: str) -> None:
    assert judges.function(name) == function


def launches(*named: tuple[str, float], grid: int = 8) -> list[Launch]:
    return [Launch(name, (grid, 1, 1, *BLOCK), ns) for name, ns in named]


def test_launches_of_the_largest_kernels_are_compared_in_their_order() -> None:
    """Two kernels of one function and shape, as PyTorch's elementwise ones, are told apart by their order."""
    ours = launches(("void add<A>(int)", 1000), ("void add<B>(int)", 9000), ("void add<A>(int)", 1040), ("gemm", 5e4))
    theirs = launches(("void add<(A)1>()", 1010), ("void add<(B)2>()", 8900), ("void add<(A)1>()", 1000), ("gemm", 6e4))
    found = list(judges.against_ncu("gpt2", [ours, ours], theirs))
    assert [(c.name, c.ok) for c in found] == [
        ("ncu, gpt2, gemm", False),
        ("ncu, gpt2, add", True),
        ("ncu, gpt2, add", True),
    ]
    assert found[0].figure == pytest.approx(1 / 6)
    assert found[2].figure == pytest.approx(statistics_of(1000 / 1010, 1.04))


def statistics_of(*ratios: float) -> float:
    """How far the mean of two ratios is from 1: what the median of both of them, twice each, comes to."""
    return abs(sum(ratios) / len(ratios) - 1)


def test_only_the_ten_largest_kernels_are_compared() -> None:
    names = [(f"kernel_{i}", 100.0 * (i + 1)) for i in range(25)]
    found = list(judges.against_ncu("gpt2", [launches(*names)], launches(*names)))
    assert [c.name for c in found] == [f"ncu, gpt2, kernel_{i}" for i in range(24, 14, -1)]
    assert all(c.ok for c in found)


@pytest.mark.parametrize(
    "theirs",
    [[], launches(("gemm", 1000)), launches(("gemm", 1000), ("gemm", 1000), grid=9), launches(*[("gemm", 1000)] * 3)],
)
def test_kernels_that_ncu_saw_more_or_less_often_fail(theirs: list[Launch]) -> None:
    ours = launches(("gemm", 1000), ("gemm", 1000))
    (found,) = judges.against_ncu("gpt2", [ours], theirs)
    assert not found.ok and "launched 2 times a step" in found.note


def test_a_profile_without_kernels_fails() -> None:
    assert [c.ok for c in judges.against_ncu("gpt2", [[]], launches(("gemm", 1000)))] == [False]


def test_kernels_whose_time_is_lost_fail() -> None:
    lost = launches(("gemm", 0.0))
    assert [c.ok for c in judges.against_ncu("gpt2", [lost], launches(("gemm", 1000)))] == [False]


@pytest.mark.parametrize(
    ("code", "printed", "ok"),
    [
        (0, "# 220 implementations checked, 0 wrong", True),
        (1, "# 220 implementations checked", False),
        (0, "WRONG gelu bf16 cuda:2\n# 220 implementations checked", False),
        (0, "", False),
    ],
)
def test_a_script_must_end_well_and_say_so(code: int, printed: str, ok: bool) -> None:
    assert judges.script_says("kernels", code, printed, "WRONG").ok is ok


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


def test_the_witness_sums_what_each_step_launched(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "perfkit:step:0", 0, 10),
        event("user_annotation", "perfkit:step:1", 20, 10),
        event("gpu_user_annotation", "perfkit:step:1", 20, 10),
        event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1),
        event("cuda_driver", "cuLaunchKernel", 9, 1, correlation=2),
        event("cuda_runtime", "cudaMemcpyAsync", 21, 1, correlation=3),
        event("cuda_runtime", "cudaLaunchKernel", 15, 1, correlation=4),
        event("cuda_runtime", "cudaDeviceSynchronize", 22, 1),
        event("kernel", "a", 2, 4.5, correlation=1),
        event("kernel", "b", 22, 2, correlation=2),  # launched in step 0, run in step 1
        event("gpu_memcpy", "c", 23, 3.5, correlation=3),
        event("kernel", "d", 16, 100, correlation=4),  # launched between the steps
        event("kernel", "e", 23, 100, correlation=99),  # launched before the capture
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    assert witness.kernel_ns(tmp_path / "trace.json", "perfkit:step:") == (6500 + 3500) / 2


def test_the_witness_reads_what_ncu_prints() -> None:
    text = """==PROF== Disconnected
"ID","Process ID","Kernel Name","Stream","Block Size","Grid Size","gpu__time_duration.sum"
"","","","","","","us"
"10","7","gemm(float *, int)","7","(128, 1, 1)","(2, 66, 1)","1,062.5"
"9","7","void add<int, (int)4>(int)","7","(256, 2, 1)","(9216, 1, 1)","28.256"
"""
    assert witness.launches_of_ncu(text) == [
        Launch("void add<int, (int)4>(int)", (9216, 1, 1, 256, 2, 1), pytest.approx(28256.0)),
        Launch("gemm(float *, int)", (2, 66, 1, 128, 1, 1), pytest.approx(1062500.0)),
    ]
    assert witness.launches_of_ncu("==WARNING== No kernels were profiled.\n") == []


def test_the_witness_reads_a_real_csv_of_ncu(samples: Path) -> None:
    found = witness.launches_of_ncu((samples / "llmc" / "llmc-h100.csv").read_text())
    assert len(found) == 86 and found[0].shape == (9216, 1, 1, 256, 1, 1)
    assert found[0].ns == pytest.approx(28256.0)


# ---- processes ----


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


@pytest.fixture
def closing() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.close()


RUN = """
import json, pathlib, sys, time
print("[  3 s] eager: building the model", file=sys.stderr)
print("[  5 s] eager: warming up", file=sys.stderr)
time.sleep(0.3)
pathlib.Path({done!r}).touch()
print(json.dumps({{"backends": [{{"name": "eager"}}]}}))
sys.exit(1)
"""


def test_a_run_is_held_until_it_may_measure(tmp_path: Path, closing: list[Process]) -> None:
    done = tmp_path / "done"
    run = HeldRun(python(RUN.format(done=str(done))), tmp_path / "run.log")
    closing.append(run)
    run.await_prepared()
    time.sleep(0.6)
    assert not done.exists()
    run.go_on()
    assert run.backends() == [{"name": "eager"}]
    assert done.exists()


def test_a_run_that_ends_early_is_told_with_its_last_words(tmp_path: Path, closing: list[Process]) -> None:
    run = HeldRun(python("import sys; sys.exit('no such workload')"), tmp_path / "run.log")
    closing.append(run)
    run.await_prepared()
    run.go_on()
    with pytest.raises(RuntimeError, match="ended with 1 and without a report: no such workload"):
        run.backends()


def test_a_held_run_ends_with_the_session(tmp_path: Path) -> None:
    run = HeldRun(python(RUN.format(done=str(tmp_path / "done"))), tmp_path / "run.log")
    run.await_prepared()
    run.close()
    assert run.result()[0] != 1 and not (tmp_path / "done").exists()


TURNS = """
import sys
from pathlib import Path
from benchmarks.checking import witness
for number in (1, 2):
    witness.await_turn(Path({go!r}))
    print(f"{{witness.STEP_NS}}[{{number}}.0, 5.0]", flush=True)
witness.await_turn(Path({go!r}))
"""


class ScriptedWitness(Witness):
    """A `Witness` of other code."""

    def __init__(self, work: Path, code: str) -> None:
        self._go = work / "go"
        Process.__init__(self, python(code), work / "witness.log")
        self._read = 0


def test_a_witness_works_when_it_is_its_turn(tmp_path: Path, closing: list[Process]) -> None:
    clock = ScriptedWitness(tmp_path, TURNS.format(go=str(tmp_path / "go")))
    closing.append(clock)
    clock.await_ready()
    assert clock.step_times() == [1.0, 5.0]
    assert clock.step_times() == [2.0, 5.0]


def test_a_witness_that_fails_is_told(tmp_path: Path, closing: list[Process]) -> None:
    clock = ScriptedWitness(tmp_path, "raise SystemExit('CUDA out of memory')")
    closing.append(clock)
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        clock.await_ready()


def test_a_witness_that_nobody_calls_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "PATIENCE_S", 0.05)
    with pytest.raises(TimeoutError):
        witness.await_turn(tmp_path / "go")


# ---- the session ----


def test_parts_prepare_side_by_side_and_measure_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def part(name: str) -> gpu_check.Part:
        order.append(f"start {name}")
        yield
        order.append(f"ready {name}")
        yield
        order.append(f"measure {name}")

    def broken() -> gpu_check.Part:
        yield
        raise RuntimeError("there is no ncu on the PATH")

    session = gpu_check.Session(tmp_path, ["gpt2", "dlrm", "ncu"])
    monkeypatch.setattr(session, "part", lambda name: broken() if name == "dlrm" else part(name))
    monkeypatch.setattr(session, "perfkit", lambda *arguments: python("pass"))
    session.run()
    stages = ("start", "ready", "measure")
    assert order == [f"{stage} {name}" for stage in stages for name in ("gpt2", "ncu")]
    assert [(c.name, c.ok) for c in session.checks] == [("dlrm", False)]
    assert "no ncu on the PATH" in session.checks[0].note


def test_a_part_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--only", "gpt3"])
    with pytest.raises(SystemExit) as stopped:
        gpu_check.main()
    assert stopped.value.code == 2


def test_every_part_is_one(tmp_path: Path) -> None:
    session = gpu_check.Session(tmp_path)
    assert all(hasattr(session.part(name), "__next__") for name in gpu_check.PARTS)


# ---- what changed since ----


def test_changed_added_and_removed_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "digests", lambda root: {"same": "1", "changed": "2", "added": "3"})
    before = {"same": "1", "changed": "1", "removed": "4"}
    assert files.changed_since({"files": before}, ROOT) == ["added", "changed", "removed"]


def test_the_digests_are_of_the_folders_that_a_gpu_check_is_about() -> None:
    found = files.digests(ROOT)
    assert all(path.startswith(files.CHECKED) for path in found)
    assert {"perfkit/capture/profile.py", "kernels/adamw/adamw.cu", "workloads/gpt2.py"} <= found.keys()
    assert all(any(path.startswith(f"{folder}/") for path in found) for folder in files.CHECKED)


def test_the_commit_is_unknown_without_git(tmp_path: Path) -> None:
    assert files.commit_of_checkout(tmp_path) == "unknown"
