"""Capturing a program under the stand-ins for ncu and nsys: the report, and every way in which it can fail."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from perfkit.capture import command
from perfkit.capture.nsight import ncu, nsys
from perfkit.errors import InputError, PerfkitError, RunFailed, Unavailable, UsageError
from perfkit.hardware import access
from tests.support.capture.tools import PAIR, stage

PROGRAM = [sys.executable, "-c", "print('hello')"]
DIES = [sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"]


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Both stand-ins on the PATH, with something to capture; a function that sets what goes wrong."""
    pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
    for name, value in stage(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "out").mkdir()
    return lambda tool, fault: monkeypatch.setenv(f"FAKE_{tool.upper()}_FAULT", fault)


def run(out: Path, program=PROGRAM, options=None, limit_s=60.0, printed=None):
    options = options or ncu.NcuOptions()
    tool = "nsys" if isinstance(options, nsys.NsysOptions) else "ncu"
    output = printed.append if printed is not None else str
    return command.capture(tool, options, program, out, str, output, limit_s)


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_capture_is_read_and_named_as_asked(tools, tmp_path):
    printed: list[str] = []
    out = tmp_path / "out" / "p.ncu-rep"
    done = run(out, printed=printed, options=ncu.NcuOptions(profiler_api=True))
    assert printed == ["hello"] and done.problem is None and done.file == out
    assert len(done.table) == PAIR.kernels and done.table.source["path"] == str(out)
    assert left(out.parent) == ["p.ncu-rep"]
    given = json.loads((tmp_path / "ncu.json").read_text())
    assert given[-3:] == PROGRAM and "--profile-from-start" in given


def test_a_program_that_fails_keeps_what_was_captured(tools, tmp_path):
    done = run(tmp_path / "out/p.ncu-rep", DIES)
    assert len(done.table) == PAIR.kernels
    assert "exit code 3" in str(done.problem) and "out of luck" in str(done.problem)


@pytest.mark.parametrize(
    ("fault", "kind", "part"),
    [
        ("permission", Unavailable, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("library", Unavailable, "LibraryNotLoaded"),
        ("unsupported", Unavailable, "--list-chips"),
        ("driver", Unavailable, "driver"),
        ("clocks", RunFailed, "--clock-control none"),
        ("busy", RunFailed, "dcgmi"),
        ("unknown", RunFailed, "Failed to profile"),
        ("filter", RunFailed, "scale, gelu_forward"),
        ("range", RunFailed, "NVTX"),
        ("nothing", RunFailed, "no kernel"),
        ("crash", RunFailed, "SIGABRT"),
        ("disk", RunFailed, "out/p.ncu-rep"),
    ],
)
def test_each_failure_of_ncu_leaves_nothing_half_done(tools, tmp_path, fault, kind, part):
    out = tmp_path / "out" / "p.ncu-rep"
    out.write_bytes(b"an older report")
    tools("ncu", fault)
    with pytest.raises(PerfkitError, match=part) as raised:
        run(out)
    assert type(raised.value) is kind
    assert left(out.parent) == ["p.ncu-rep"] and out.read_bytes() == b"an older report"


def test_a_report_that_lost_kernels_is_never_whole(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NCU_KERNELS", ",".join(["kernel"] * (PAIR.kernels + 2)))
    done = run(tmp_path / "out/p.ncu-rep")
    lost = f"holds {PAIR.kernels} of the {PAIR.kernels + 2} kernels"
    assert lost in str(done.problem) and lost in done.table.warnings[0]


def test_a_report_that_is_cut_off(tools, tmp_path, monkeypatch):
    whole = (tmp_path / "captured.ncu-rep").read_bytes()
    (tmp_path / "captured.ncu-rep").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"p\.ncu-rep is a damaged"):
        run(tmp_path / "out/p.ncu-rep")
    assert left(tmp_path / "out") == []


def test_a_program_that_hangs(tools, tmp_path):
    with pytest.raises(RunFailed, match="did not end under ncu within 2 s"):
        run(tmp_path / "out/p.ncu-rep", [sys.executable, "-c", "import time; time.sleep(600)"], limit_s=2.0)
    assert left(tmp_path / "out") == []


def test_no_tool(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for options in (ncu.NcuOptions(), nsys.NsysOptions()):
        with pytest.raises(Unavailable, match=r"not on the PATH\. Install it"):
            run(tmp_path / "p", options=options)


def test_no_program_and_no_folder(tools, tmp_path):
    with pytest.raises(UsageError, match="No program"):
        run(tmp_path / "p.ncu-rep", [])
    with pytest.raises(UsageError, match="is not a program"):
        run(tmp_path / "p.ncu-rep", ["./cheese"])
    with pytest.raises(UsageError, match="is a folder"):
        run(tmp_path / "out")
    with pytest.raises(UsageError, match="cannot be made"):
        run(tmp_path / "captured.ncu-rep" / "p.ncu-rep")


def test_a_folder_that_may_not_be_written_is_found_out_before_the_program_runs(tools, tmp_path, monkeypatch):
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **how: not mode & os.W_OK and real(path, mode, **how))
    with pytest.raises(UsageError, match=r"may not write into .*closed"):
        run(tmp_path / "closed" / "p.ncu-rep", ["touch", str(tmp_path / "ran")])
    assert not (tmp_path / "ran").exists()


def test_a_gpu_that_this_user_may_not_open(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(access, "closed_devices", lambda root=None: [Path("/dev/nvidia0")])
    with pytest.raises(Unavailable, match=r"--tool ncu: this user may not open .*: /dev/nvidia0\."):
        run(tmp_path / "p.ncu-rep", ["touch", str(tmp_path / "ran")])
    assert not (tmp_path / "ran").exists()


def test_nsys_is_captured_and_its_export_read(tools, tmp_path):
    printed: list[str] = []
    out = tmp_path / "out" / "p.nsys-rep"
    done = run(out, options=nsys.NsysOptions(profiler_api=True), printed=printed)
    assert printed == ["hello"] and done.problem is None and len(done.table)
    assert done.file == out.with_suffix(".sqlite") and left(out.parent) == ["p.nsys-rep", "p.sqlite"]
    given = json.loads((tmp_path / "nsys.json").read_text())
    assert given[0] == "profile" and given[-3:] == PROGRAM
    for name, value in (
        ("--trace", "cuda,nvtx,osrt"),
        ("--capture-range", "cudaProfilerApi"),
        ("--export", "sqlite"),
        ("--cuda-graph-trace", "node"),
    ):
        assert given[given.index(name) + 1] == value


def test_nsys_waits_for_a_range(tools, tmp_path):
    run(tmp_path / "out/p.nsys-rep", options=nsys.NsysOptions(nvtx=("perfkit@step",)))
    given = json.loads((tmp_path / "nsys.json").read_text())
    assert given[given.index("--capture-range") + 1] == "nvtx"
    assert given[given.index("--nvtx-capture") + 1] == "step@perfkit"


@pytest.mark.parametrize(
    ("fault", "part", "kept"),
    [
        ("importer", r"p\.qdstrm: its importer", ["p.qdstrm"]),
        ("export", "nsys export --type sqlite --output .*p.sqlite .*p.nsys-rep", ["p.nsys-rep"]),
        ("range", "range that was to be captured did not begin", []),
        ("crash", "SIGABRT", []),
    ],
)
def test_each_failure_of_nsys(tools, tmp_path, fault, part, kept):
    tools("nsys", fault)
    with pytest.raises(RunFailed, match=part):
        run(tmp_path / "out/p.nsys-rep", options=nsys.NsysOptions(profiler_api=True))
    assert left(tmp_path / "out") == kept


def test_nsys_of_a_program_that_fails(tools, tmp_path):
    done = run(tmp_path / "out/p.nsys-rep", DIES, nsys.NsysOptions())
    assert len(done.table) and "exit code 3" in str(done.problem)


def test_the_stand_ins_refuse_what_the_tools_would(tools, tmp_path):
    import subprocess

    for arguments in (["ncu", "--cheese"], ["ncu", "-o", "x", "--set", "cheese", "true"], ["nsys", "profile", "true"]):
        assert subprocess.run([shutil.which(arguments[0]), *arguments[1:]], capture_output=True).returncode != 0
