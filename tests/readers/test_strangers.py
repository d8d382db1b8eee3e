"""`benchmarks/reading/strangers.py`: agreement, every kind of disagreement, and sentences worth a look."""

from __future__ import annotations

import json
import math
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reading import strangers, witnesses
from tests.conftest import ROOT
from tests.support.packed import ncu_file
from tests.support.readers import nsys_exports, traces

FIXTURES = ROOT / "tests/fixtures"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("kineto/eager.json.gz", "kineto/graph.json.gz", "pair/trace.json.gz", "kineto/nccl-rank0.json.gz"):
        shutil.copy(FIXTURES / name, tmp_path / name.replace("/", "-"))
    nsys_exports.write(tmp_path / "two.sqlite", nsys_exports.two_steps())
    (tmp_path / "full.csv").write_bytes(ncu_file("kernels-full.raw.csv"))
    (tmp_path / "products.ncu-rep").write_bytes(ncu_file("products-full.ncu-rep"))
    traces.write(tmp_path / "cpu.json", traces.training_step())
    (tmp_path / "package.json").write_text('{"name": "x"}')
    return tmp_path


def test_each_file_has_a_line_and_all_agree(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert strangers.main([folder]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = {Path(line.split(": ", 1)[0]).name: line.split(": ", 1)[1] for line in lines if line.startswith(str(folder))}
    assert len(said) == 9
    assert said.pop("package.json").startswith("refused: it is JSON, but not a torch.profiler trace")
    assert {line.split(":")[0] for line in said.values()} == {"agrees"}
    assert "kernels 191, activities 249" in said["kineto-nccl-rank0.json.gz"]


def test_a_witness_of_a_trace_counts_by_hand(tmp_path: Path) -> None:
    def work(cat: str, start: float, end: float, correlation: int, **args: Any) -> dict[str, Any]:
        return traces.event(cat, args.pop("name", "k"), start, end, correlation=correlation, **args)

    events = [
        traces.mark("ProfilerStep#4", 0, 100),
        traces.mark("ProfilerStep#5", 100, 200),
        *[
            traces.event("cuda_runtime", "cudaLaunchKernel", t, t + 5, correlation=i)
            for i, t in enumerate((10, 20, 110))
        ],
        work("kernel", 30, 60, 0),
        work("kernel", 50, 80, 1, name="ncclDevKernel_AllReduce"),
        work("gpu_memcpy", 300, 310, 2, bytes=64),
        work("gpu_memset", 305, 320, 99),
    ]
    assert witnesses.of_file(traces.write(tmp_path / "t.json", events)) == {
        "kernels": 2, "activities": 4, "kernel_ns": pytest.approx(60_000), "busy_ns": pytest.approx(70_000),
        "collectives": 1, "copy_bytes": 64, "launched_by_step": [2, 1],
    }  # fmt: skip


def test_a_witness_of_operators_counts_threads_apart(tmp_path: Path) -> None:
    events = [traces.op("a", 0, 10), traces.op("b", 2, 5), traces.op("c", 8, 12, tid=2)]
    found = witnesses.of_file(traces.write(tmp_path / "t.json", events))
    assert found == {"operators_ns": pytest.approx(14_000)}


class _Report:
    """A report of Nsight Compute of one range, as NVIDIA's package gives it: kernels of these durations."""

    def __init__(self, durations: list[float]) -> None:
        times = [types.SimpleNamespace(has_value=lambda: True, as_double=lambda ns=ns: ns) for ns in durations]
        self._actions = [types.SimpleNamespace(metric_by_name=lambda _, time=time: time) for time in times]

    def __len__(self) -> int:
        return 1

    def range_by_idx(self, _: int) -> list[types.SimpleNamespace]:
        return self._actions


def test_a_witness_of_a_report_leaves_out_a_kernel_whose_measurement_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The duration of such a kernel is NaN; the others have theirs."""
    package = types.SimpleNamespace(load_report=lambda _: _Report([16_448.0, math.nan, 3_232.0]))
    monkeypatch.setitem(sys.modules, "ncu_report", package)
    assert witnesses.of_report(Path("x.ncu-rep")) == {"kernels": 3, "kernel_ns": 19_680.0}


@pytest.mark.parametrize(
    ("witness", "seen", "differ"),
    [
        ({"kernels": 5}, {"kernels": 5}, ""),
        ({"kernels": 5}, {"kernels": 6}, "kernels 6 ≠ 5"),
        ({"kernel_ns": 1e9}, {"kernel_ns": 1e9 + 100}, ""),
        ({"kernel_ns": 1e9}, {"kernel_ns": 1.01e9}, "kernel_ns"),
        ({"copy_bytes": 5}, {"copy_bytes": None}, "copy_bytes None"),
        ({"collectives": 3}, {"collectives": 4}, ""),
        ({"collectives": 3}, {"collectives": 2}, "collectives 2 < 3"),
        ({"launched_by_step": [2, 1]}, {"launched_by_step": [1, 2]}, "launched_by_step"),
        ({"operators_ns": 100.0}, {"operators_ns": 90.0}, ""),
        ({"operators_ns": 1e6}, {"operators_ns": 2e6}, "rows take"),
    ],
)
def test_disagreements(witness: dict[str, Any], seen: dict[str, Any], differ: str) -> None:
    found = strangers.disagreements(witness, seen)
    assert differ in found[0] if differ else not found


def test_a_disagreement_and_a_traceback_end_with_1(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "seen_by_perfkit", lambda table: {"kernels": 1})
    assert strangers.main([folder / "kineto-eager.json.gz"]) == 1
    assert "DISAGREES: kernels 1 ≠ 100" in capsys.readouterr().out
    monkeypatch.setattr(strangers.perfkit, "read", lambda path: 1 / 0)
    assert strangers.main([folder / "cpu.json"]) == 1
    assert "TRACEBACK ZeroDivisionError" in capsys.readouterr().out


def _report(**backend: Any) -> str:
    finding = {"title": "t", "evidence": "e", "saving_ns": 1.0}
    plain: dict[str, Any] = {
        "accounting": {"profiled_step_ns": 100.0, "other_ns": 1.0},
        "findings": [finding | backend.pop("finding", {})],
        "families": [], "kernels": [],
    }  # fmt: skip
    return json.dumps({"verdict": backend.pop("verdict", []), "warnings": [], "backends": [plain | backend]})


@pytest.mark.parametrize(
    ("backend", "text", "look"),
    [
        ({}, "", ""),
        ({"finding": {"saving_ns": 101.0}}, "", "a saving above the step: t"),
        ({"verdict": ["It takes 103 % of the roof."]}, "", "a share above 100 %"),
        ({"verdict": ["Overhead +2,471 %."]}, "", ""),
        ({"finding": {"evidence": "1.5e+03 copies"}}, "", "an exponent"),
        ({"accounting": {"profiled_step_ns": 100.0, "other_ns": 6.0}}, "", "other is 6% of the step"),
        ({"families": [{"key": "other", "share": 0.4}]}, "", "family other has 40%"),
        ({"kernels": [{"key": "k", "efficiency": 1.2}]}, "", "efficiency 120%: k"),
        ({}, "kernel\nab…cd   1   2\nab…cd   3   4\n", "2 rows called 'ab…cd'"),
        ({}, "kernel\nab…cd   1   2\n\nkernel\nab…cd   3   4\n", ""),
    ],
)
def test_what_is_worth_a_look(backend: dict[str, Any], text: str, look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = _report(**backend)
    monkeypatch.setattr(strangers, "rendered", types.SimpleNamespace(render=lambda report: content))
    monkeypatch.setattr(strangers, "terminal", types.SimpleNamespace(render=lambda report: text))
    found = strangers.worth_a_look(None)
    assert len(found) == bool(look)
    assert all(one.startswith(look) for one in found)
