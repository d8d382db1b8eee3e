"""`perfkit capture`, `run --profiler` and `report --counters` as typed: reports, sentences, exit codes."""

import json

import pytest

from perfkit import cli
from tests.cli.test_mistakes import mistake
from tests.conftest import CliResult
from tests.support.capture.tools import PAIR, stage


@pytest.fixture
def run_here(monkeypatch, capfd):
    """Like `run_cli`, in this process: a process a mistake would take a second each."""

    def run(args, cwd, env=None):
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.chdir(cwd)
        code = cli._run([str(a) for a in args])
        return CliResult(code, *capfd.readouterr())

    return run


@pytest.fixture
def environment(tmp_path):
    """Variables under which ncu and nsys are stand-ins that hand out a real capture."""
    pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
    return stage(tmp_path / "tools")


def files(folder):
    return sorted(p.name for p in folder.iterdir() if p.name != "tools")


def test_a_program_is_profiled_and_reported_on(run_cli, tmp_path, environment):
    command = ["capture", "--tool", "ncu", "--out", "step", "--json", "--", "sh", "-c", "echo loss 1.5"]
    result = run_cli(command, cwd=tmp_path, env=environment)
    assert result.rc == 0, result.stderr
    report = json.loads(result.stdout)
    assert sum(k["count"] for k in report["backends"][0]["kernels"]) == PAIR.kernels
    assert "loss 1.5" in result.stderr and "profiling under ncu" in result.stderr
    assert files(tmp_path) == ["step.ncu-rep"]


def test_a_program_that_fails_is_reported_on_and_fails_the_command(run_here, tmp_path, environment):
    result = run_here(["capture", "--tool", "ncu", "sh", "-c", "echo no luck; exit 3"], cwd=tmp_path, env=environment)
    assert result.rc == 1
    assert "copy_strided" in result.stdout and "profile.ncu-rep" in result.stdout
    assert "perfkit: The program ended under ncu with exit code 3." in result.stderr and "no luck" in result.stderr


@pytest.mark.parametrize(
    ("fault", "code", "part"),
    [
        ("permission", 2, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("filter", 1, "Kernels that ran: scale, gelu_forward"),
    ],
)
def test_failures_of_the_tool_are_one_sentence(run_here, tmp_path, environment, fault, code, part):
    result = run_here(["capture", "--tool", "ncu", "true"], cwd=tmp_path, env={**environment, "FAKE_NCU_FAULT": fault})
    assert part in mistake(result, code)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["capture"], ["COMMAND"]),
        (["capture", "--tool", "nvprof", "true"], ["nvprof", "ncu"]),
        (["capture", "--tool", "ncu", "--set", "ful", "true"], ["ful", "full"]),
        (["capture", "--tool", "ncu", "--clock-control", "boost", "true"], ["boost", "base"]),
        (["capture", "--tool", "ncu", "--cache-control", "some", "true"], ["some", "all"]),
        (["capture", "--tool", "ncu", "--time-limit", "0", "true"], ["--time-limit"]),
        (["capture", "--launch-count", "-1", "true"], ["--launch-count"]),
        (["capture", "--tool", "nsys", "--set", "full", "true"], ["--set", "ncu"]),
        (["capture", "--set", "full", "true"], ["--set", "--tool ncu"]),
        (["capture", "--tool", "torch,nsys", "true"], ["torch,nsys", "torch,ncu"]),
        (["capture", "--tool", "torch,ncu", "--launch-count", "3", "true"], ["--launch-count"]),
        (["capture", "--tool", "torch,ncu", "--set", "ful", "true"], ["ful", "full"]),
        (["capture", "--tool", "torch,ncu", "--whole", "true"], ["--whole"]),
        (["capture", "--whole", "--steps", "5", "true"], ["--steps", "--whole"]),
        (["capture", "--json", "true"], ["--json", "--tool ncu"]),
        (["capture", "--warmup", "0", "true"], ["--warmup"]),
        (["capture", "--backend", "a/b", "true"], ["a/b", "letters"]),
        (["capture", "--tool", "nsys", "--nvtx", "a", "--nvtx", "b", "true"], ["one NVTX range"]),
        (["capture", "./cheese"], ["./cheese", "not a program"]),
        (["run", "gpt2", "--profiler", "nuc"], ["nuc", "ncu"]),
        (["run", "gpt2", "--set", "full"], ["--set", "ncu"]),
        (["run", "gpt2", "--one-layer"], ["--one-layer", "ncu"]),
        (["run", "gpt2", "--profiler", "ncu", "--set", "everything"], ["everything", "full"]),
        (["report", "a", "b", "--counters", "c"], ["--counters", "one by one"]),
        (["report", "a", "--style", "llmc", "--counters", "c"], ["llmc"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) and len(value) > 1 else None,
)
def test_mistakes(run_here, tmp_path, environment, arguments, parts):
    sentence = mistake(run_here(arguments, cwd=tmp_path, env=environment))
    assert all(part in sentence for part in parts), sentence
    assert files(tmp_path) == []


def test_no_tool(run_here, tmp_path):
    for tool in ("ncu", "nsys"):
        result = run_here(["capture", "--tool", tool, "true"], cwd=tmp_path, env={"PATH": "/nowhere"})
        assert f"`{tool}` is not on the PATH. Install it" in mistake(result)


def test_a_report_that_exists_is_kept(run_here, tmp_path, environment):
    (tmp_path / "profile.ncu-rep").write_bytes(b"precious")
    assert "--overwrite" in mistake(run_here(["capture", "--tool", "ncu", "true"], cwd=tmp_path, env=environment))
    assert (tmp_path / "profile.ncu-rep").read_bytes() == b"precious"
    assert run_here(["capture", "--tool", "ncu", "--overwrite", "true"], cwd=tmp_path, env=environment).rc == 0
    assert (tmp_path / "profile.ncu-rep").stat().st_size > 100_000


def test_counters_are_joined_onto_a_trace(run_here, tmp_path, environment):
    command = ["report", PAIR.trace, "--counters", environment["FAKE_NCU_REPORT"], "--out", tmp_path / "joined"]
    result = run_here([*command, "--format", "parquet,json"], tmp_path)
    assert result.rc == 0, result.stderr
    assert "joined onto 24 of 24 kernels" in " ".join(result.stdout.split())
    swapped = run_here(["report", environment["FAKE_NCU_REPORT"], "--counters", PAIR.trace], cwd=tmp_path)
    assert "is not a report of Nsight Compute" in mistake(swapped)


def test_a_script_without_its_interpreter_is_told_how(run_here, tmp_path, environment):
    (tmp_path / "train.py").write_text("print(1)")
    sentence = mistake(run_here(["capture", "train.py"], cwd=tmp_path, env=environment))
    assert "train.py is not a program that can be run. perfkit capture -- python train.py" in sentence
