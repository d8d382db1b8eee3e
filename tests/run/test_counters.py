"""`run --profiler ncu` and nsys: the target under the stand-ins, the joined table, and a run that goes on without."""

import json
import sys

import pytest

from perfkit.capture.nsight import TOOLS, joining, ncu
from perfkit.errors import RunFailed, UsageError
from perfkit.readers.kineto.trace import read_trace
from perfkit.run import counters
from perfkit.run.session import Session
from perfkit.run.target import TargetOrder
from perfkit.run.target import run as run_target
from perfkit.run_folder import read_manifest
from perfkit.table import KernelTable
from tests.run.test_session import SMALL, settings
from tests.support.capture.tools import PAIR, stage
from tests.support.forks import SOCKET, server
from tests.support.sweeps import rest


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Both tools on the PATH, ready to hand out a real capture; the folder of a backend with its trace's table."""
    pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
    for name, value in {**stage(tmp_path), SOCKET: server().path}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "eager"
    folder.mkdir()
    read_trace(PAIR.trace).write(folder / "kernels.parquet")
    return folder


def test_ncu_watches_the_target_and_its_counters_are_joined(stand_ins, tmp_path):
    shown: list[str] = []
    plan = counters.NsightPlan(tool="ncu", ncu=ncu.NcuOptions(set="full", profiler_api=True))
    assert counters.add(plan, settings(), "eager", stand_ins, shown.append) == "counters.ncu-rep"
    given = json.loads((tmp_path / "ncu.json").read_text())
    assert given[-4:-1] == [sys.executable, "-m", "perfkit.run.target"]
    assert given[given.index("--set") + 1] == "full" and given[given.index("--profile-from-start") + 1] == "off"
    assert given[given.index("--clock-control") + 1] == "none" and "--nvtx" in given
    joined = KernelTable.load(stand_ins / "kernels.parquet")
    told = joined.facts["counters"]
    assert told["matched"] == told["kernels"] == 2 * PAIR.kernels and told["report"] == "counters.ncu-rep"
    assert (joined.frame["instructions_origin"] == "counter").all()
    assert "row_ceilings" not in joined.facts  # a run is judged by its own ceilings
    assert "building the model" in (stand_ins / "ncu.txt").read_text()
    assert shown[0] == "starting ncu" and any(f"of about {PAIR.kernels}" in text for text in shown)


def test_a_model_of_one_layer_is_said_so(stand_ins):
    with pytest.raises(RunFailed, match="one-layer needs a workload"):
        counters.add(counters.NsightPlan(tool="ncu", one_layer=True), settings(), "eager", stand_ins, str, lambda: 3)
    with pytest.raises(RunFailed, match="does not show layers"):
        counters.add(counters.NsightPlan(tool="ncu", one_layer=True), settings(), "eager", stand_ins, str, lambda: 0)
    assert "counters" not in KernelTable.load(stand_ins / "kernels.parquet").facts
    assert joining.layers_of(stand_ins / "kernels.parquet") == 0  # the program names no layers


def test_nsys_leaves_report_export_and_table(stand_ins, monkeypatch):
    monkeypatch.delenv(SOCKET)  # the target in an interpreter of its own, for once
    assert counters.add(counters.NsightPlan(tool="nsys"), settings(), "eager", stand_ins, str) == "nsight.nsys-rep"
    assert {"nsight.nsys-rep", "nsight.sqlite", "nsight.parquet"} <= {p.name for p in stand_ins.iterdir()}
    assert len(KernelTable.load(stand_ins / "nsight.parquet"))


@pytest.mark.parametrize("fault", ["permission", "crash", rest("disk"), rest("nothing")])
def test_a_failure_leaves_the_table_as_it_was(stand_ins, monkeypatch, fault):
    before = (stand_ins / "kernels.parquet").read_bytes()
    monkeypatch.setenv("FAKE_NCU_FAULT", fault)
    with pytest.raises(Exception, match=r"\w") as raised:
        counters.add(counters.NsightPlan(tool="ncu"), settings(), "eager", stand_ins, str)
    assert type(raised.value).__name__ in ("Unavailable", "RunFailed")
    assert (stand_ins / "kernels.parquet").read_bytes() == before


def test_a_target_that_dies_is_quoted(stand_ins, monkeypatch):
    monkeypatch.setenv("SMALL_RAISES", "1")
    said = r"exit code 1\. The program's last words: .*small\.py, line \d+, in forward: ValueError: the second layer"
    with pytest.raises(RunFailed, match=said):
        counters.add(counters.NsightPlan(tool="ncu"), settings(), "eager", stand_ins, str)


def test_a_run_without_counters_is_whole_and_says_what_it_lacks(tmp_path, monkeypatch):
    asked = []

    def refuse(plan, given, backend, folder, show, layers):
        asked.append(backend)
        raise RunFailed("It went wrong.")

    monkeypatch.setattr(counters, "impossible", lambda plan, given: None)
    monkeypatch.setattr(counters, "add", refuse)
    plan = counters.NsightPlan(tool="ncu")
    session = Session(settings(profiler="ncu", steps=1), {"eager": "eager"}, tmp_path / "run", nsight=plan)
    session.run()
    assert asked == ["eager"] and str(session.nsight_problems[0]) == "eager: It went wrong."
    run = read_manifest(tmp_path / "run")
    assert run.backend("eager").status == "ok" and run.backend("eager").trace and not run.backend("eager").nsight
    assert run.warnings == ["Nothing of Nsight's is in this report. eager: It went wrong."]


def test_no_tool_and_no_gpu_are_said_before_anything_starts(tmp_path, monkeypatch):
    problem = counters.impossible(counters.NsightPlan(tool="ncu"), settings())
    assert str(problem) == "ncu profiles GPUs, and this workload runs on the CPU. Run it with --device cuda."
    monkeypatch.setenv("PATH", str(tmp_path))
    for tool in TOOLS:
        problem = counters.impossible(counters.NsightPlan(tool=tool), settings(device="cuda"))
        assert f"`{tool}` is not on the PATH" in str(problem)


def test_the_target_keeps_one_layer_where_the_workload_has_layers():
    torch = pytest.importorskip("torch")
    from perfkit.run.one_layer import keep_one_layer

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Module()
            self.body.h = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))

    net = Net()
    keep_one_layer(net, "body.h.*")
    assert len(net.body.h) == 1
    for pattern in ("", "body.*", "nothing.*", "body.h.*.attn"):
        with pytest.raises(UsageError, match="ModuleList"):
            keep_one_layer(net, pattern)


def test_the_target_runs_its_steps_alone():
    pytest.importorskip("torch")
    run_target(TargetOrder(settings=settings(workload=str(SMALL)), backend="eager", steps=1, warmup=1))
