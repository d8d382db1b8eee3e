"""A program's second run, under the stand-in for ncu: its orders, the joined table, and a run that goes on."""

import json
import sys

import pytest

from perfkit.capture import counted, program
from perfkit.capture.agent.order import Order
from perfkit.errors import PerfkitError, RunFailed
from perfkit.readers.kineto.trace import read_trace
from perfkit.run_folder import BackendRun
from perfkit.table import KernelTable
from tests.support.capture.tools import PAIR, stage

# Instead of training, an armed program checks its environment and writes what it would report.
PROGRAM = """
import json, os, pathlib
order = pathlib.Path(os.environ["PERFKIT_CAPTURE"])
print("order", order.read_text())
(order.parent / "process-1").mkdir()
(order.parent / "process-1" / "result.json").write_text(json.dumps({"problem": os.environ.get("PROBLEM", "")}))
"""
COMMAND = [sys.executable, "-S", "-c", PROGRAM]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The run folder of a program's trace, and the tools on the PATH."""
    pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
    for name, value in stage(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run" / "program").mkdir(parents=True)
    read_trace(PAIR.trace).write(tmp_path / "run" / "program" / "kernels.parquet")
    return tmp_path / "run"


def test_the_counters_of_a_second_run_are_joined(run, tmp_path):
    record, shown = BackendRun(name="program"), []
    counted.add(counted.CounterPlan(), COMMAND, Order(warmup=4, steps=3), [record], run, shown.append)
    given = json.loads((tmp_path / "ncu.json").read_text())
    assert given[-len(COMMAND) :] == COMMAND and given[given.index("--profile-from-start") + 1] == "off"
    order = json.loads((run / "program" / "ncu.txt").read_text().splitlines()[0].removeprefix("order "))
    assert (order["warmup"], order["steps"], order["stop"], order["counters"]) == (4, 1, True, True)
    told = KernelTable.load(run / "program" / "kernels.parquet").facts["counters"]
    assert told["matched"] == told["kernels"] == 2 * PAIR.kernels and told["unused"] == 0
    assert record.nsight == "counters.ncu-rep" and "runs a second time" in shown[0]


def test_what_fails_is_a_warning_and_the_table_stays(run, monkeypatch):
    table = run / "program" / "kernels.parquet"
    before, record = table.read_bytes(), BackendRun(name="program")
    ordered = program.CapturedProgram(COMMAND, Order(), run, counters=counted.CounterPlan())
    monkeypatch.setenv("FAKE_NCU_FAULT", "nothing")
    monkeypatch.setenv("PROBLEM", "The program took 4 steps.")
    (said,) = program._counted(ordered, run, lambda *_: None, [record])
    assert (
        said
        == "There are no hardware counters in this report. Under ncu no step was counted. The program took 4 steps."
    )
    assert table.read_bytes() == before and not record.nsight


def test_without_ncu_the_program_does_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    words = [sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    with pytest.raises(PerfkitError, match="`ncu` is not on the PATH"):
        program.capture(
            program.CapturedProgram(words, Order(), tmp_path / "out", counters=counted.CounterPlan()), lambda *_: None
        )
    assert not (tmp_path / "ran").exists()


def test_two_processes_are_not_told_apart(run):
    records = [BackendRun(name="program"), BackendRun(name="program-rank1")]
    with pytest.raises(RunFailed, match="2 processes were recorded"):
        counted.add(counted.CounterPlan(), COMMAND, Order(), records, run, str)
