"""`benchmarks/gpu_check.py`: each judge (`gpu_judges.py`) fails on a planted fault; what changed since it last ran."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_check, gpu_judges, gpu_witness

ALL_HOLD = [{"says": "device activities have times", "holds": True, "sentence": ""}] * 7
NOT_APPLICABLE = {"says": "the timed step is at least the busy time", "holds": None, "sentence": ""}


def test_which_files_changed_since_the_last_check_of_a_gpu() -> None:
    """Prints, and never fails: a GPU is not always at hand."""
    if not gpu_check.RESULT.is_file():
        warnings.warn("no GPU was checked yet: make gpu-check", stacklevel=1)
        return
    result = json.loads(gpu_check.RESULT.read_text())
    assert result["checks"] and result["files"], "a result names what was checked"
    changed = gpu_check.changed_since(result)
    if changed:
        named = ", ".join(changed[:10]) + (f" and {len(changed) - 10} more" if len(changed) > 10 else "")
        warnings.warn(f"{len(changed)} files changed since make gpu-check ({result['date']}): {named}", stacklevel=1)


@pytest.mark.parametrize(
    ("value", "witness", "ok"),
    [
        (1000.0, 1000.5, True),
        (1000.0, 1002.0, False),
        (0.0, 1000.0, False),
        (None, 1000.0, False),
        (1.0, math.nan, False),
    ],
)
def test_a_figure_must_be_there_and_near_its_witness(value: float | None, witness: float, ok: bool) -> None:
    assert gpu_judges.within("kernel time", value, witness, gpu_judges.KERNEL_TIME).ok is ok


@pytest.mark.parametrize(
    ("backend", "ok"),
    [
        ({"trace_checks": [*ALL_HOLD, NOT_APPLICABLE], "unusable": ""}, True),
        ({"trace_checks": [*ALL_HOLD, {**NOT_APPLICABLE, "holds": False}], "unusable": ""}, False),
        ({"trace_checks": ALL_HOLD, "unusable": "kernels have no times"}, False),
        ({"trace_checks": [NOT_APPLICABLE]}, False),
        ({}, False),
    ],
)
def test_trace_checks_must_be_there_and_hold(backend: dict[str, Any], ok: bool) -> None:
    assert gpu_judges.trace_checks("gpt2 eager", backend).ok is ok


def turns(ns: float, *factors: float) -> list[list[float]]:
    return [[ns * factor] * 4 for factor in factors]


SWING = (1.0, 1.3, 0.9, 1.1, 1.2, 0.95, 1.0, 1.25) * 4  # a host whose pace changes


@pytest.mark.parametrize(
    ("inside", "own", "ok"),
    [
        (1.0, 1.0, [True, True, True]),
        (1.05, 1.0, [False, True, True]),  # the loop's clock is wrong
        (1.0, 1.08, [True, False, True]),  # the loop makes steps faster than they are
        (1.0, 0.92, [True, False, True]),
        (1.0, 2.0, [True, False, False]),
    ],
)
def test_step_times_hold_though_the_host_swings(inside: float, own: float, ok: list[bool]) -> None:
    found = gpu_judges.step_times(
        "gpt2", 1000, 900, turns(1000, *SWING), turns(1000 * inside, *SWING), turns(1000 * own, *SWING)
    )
    assert [c.ok for c in found] == ok


@pytest.mark.parametrize(
    ("run", "kernels", "ok"),
    [
        (1100, 900, True),
        (1200, 900, False),  # the GPU's step: another process takes as long
        (800, 900, False),
        (1900, 300, True),  # the host's step
        (2100, 300, False),
        (450, 300, False),
    ],
)
def test_the_step_of_a_run_agrees_as_far_as_the_host_allows(run: float, kernels: float, ok: bool) -> None:
    same = turns(1000, *SWING)
    *_, found = gpu_judges.step_times("gpt2", run, kernels, same, same, turns(1000, *[1.0] * 32))
    assert found.ok is ok


def test_ratios_that_say_nothing_fail() -> None:
    assert gpu_judges.by_chance("steps", [0.97, 0.99, 1.01, 1.04] * 8, 0.03).ok
    assert not gpu_judges.by_chance("steps", [0.5, 0.7, 1.3, 1.6] * 8, 0.03).ok


def row(name: str, ns: float, grid: int = 8) -> dict[str, Any]:
    shape = {f"{kind}_{axis}": 1 for kind in ("grid", "block") for axis in "xyz"}
    return {"short_name": name, "duration_ns": ns, **shape, "grid_x": grid}


def test_durations_are_compared_for_equal_launches_and_the_largest_kernels() -> None:
    trace = gpu_judges.durations([row("gemm", 1000), row("gemm", 1020), row("gemm", 9000, grid=99), row("add", 10)])
    good = gpu_judges.durations([row("gemm", 1050), row("add", 10.5), row("other", 5)])
    assert [(c.name, c.ok) for c in gpu_judges.against_ncu("gpt2", trace, good)] == [
        ("ncu, gpt2, gemm", True),
        ("ncu, gpt2, add", True),
    ]
    slow = gpu_judges.durations([row("gemm", 1200)])
    assert [c.ok for c in gpu_judges.against_ncu("gpt2", trace, slow)] == [False]
    (nothing,) = gpu_judges.against_ncu("gpt2", trace, {})
    assert not nothing.ok


def test_the_witness_sums_what_each_step_launched(tmp_path: Path) -> None:
    def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}

    events = [
        event("user_annotation", "perfkit:step:0", 0, 10),
        event("user_annotation", "perfkit:step:1", 20, 10),
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
    assert gpu_witness.kernel_ns(tmp_path / "trace.json", "perfkit:step:") == (6500 + 3500) / 2


def test_a_result_of_some_parts_is_not_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "RESULT", tmp_path / "gpu-check.json")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(gpu_check.Session, "run", lambda self: self.add(gpu_judges.Check("one", True)))
    monkeypatch.setattr(gpu_check.Session, "result", lambda self, commit: {"seconds": 1, "commit": commit})
    for given, written in ((["--only", "ncu"], False), ([], True)):
        monkeypatch.setattr("sys.argv", ["gpu_check.py", *given])
        assert gpu_check.main() == 0
        assert gpu_check.RESULT.is_file() is written


def test_a_part_that_cannot_be_run_is_a_failed_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: gpu_check.Session) -> None:
        raise RuntimeError("there is no GPU")

    monkeypatch.setattr(gpu_check.Session, "ncu", broken)
    broken.__name__ = "ncu"
    session = gpu_check.Session(tmp_path, only="ncu")
    session.run()
    assert [(c.name, c.ok) for c in session.checks] == [("ncu", False)]


def test_changed_added_and_removed_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "digests", lambda: {"same": "1", "changed": "2", "added": "3"})
    before = {"same": "1", "changed": "1", "removed": "4"}
    assert gpu_check.changed_since({"files": before}) == ["added", "changed", "removed"]


def test_the_digests_are_of_the_folders_that_a_gpu_check_is_about() -> None:
    found = gpu_check.digests()
    assert all(path.startswith(gpu_check.CHECKED) for path in found)
    assert {"perfkit/run/profile.py", "kernels/adamw/adamw.cu", "workloads/gpt2.py"} <= found.keys()
