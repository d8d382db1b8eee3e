"""Folders of profiles: each file is named, and what belongs together is read together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.cli import main
from perfkit.errors import InputError
from perfkit.readers.folder import contents_of
from tests.support.readers.xspaces import plane, space

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {}}
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT]})
SUMS = "Time (%),Total Time (ns),Instances,Name\n100.0,3000,3,k\n"
CALLS = "Time (%),Total Time (ns),Num Calls,Name\n100.0,3000,3,cudaLaunchKernel\n"


def _uses(folder: Path) -> dict[str, str]:
    return {item.path.name: item.use for item in contents_of(folder).items}


JOINS = "its shapes and values join the trace next to it, where both are of one recording"


def test_each_file_is_named_with_its_use(tmp_path: Path) -> None:
    (tmp_path / "capture_traces").mkdir()
    profile = space(plane("/host:CPU", {"python": [("dot.1", 0, 90, {"hlo_op": "dot.1"})]}))
    for name, content in {
        "replay.json": TRACE, "capture_traces/bs_8.json": TRACE, "notes.txt": "12 ms\n", "empty.json": "",
        "et.json": json.dumps({"schema": "1.1.1-chakra", "nodes": [{"id": 1}]}),
        "s_cuda_gpu_kern_sum.csv": SUMS, "s_cuda_api_sum.csv": CALLS, "vm.trace.json.gz": "{}",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(content)
    (tmp_path / "vm.xplane.pb").write_bytes(profile)
    assert _uses(tmp_path) == {
        "replay.json": "read", "bs_8.json": "read with the trace next to its folder", "notes.txt": "left out",
        "empty.json": "left out", "et.json": JOINS, "s_cuda_gpu_kern_sum.csv": "read",
        "s_cuda_api_sum.csv": "read with s_cuda_gpu_kern_sum.csv", "vm.xplane.pb": "read",
        "vm.trace.json.gz": "left out for vm.xplane.pb, the same profile",
    }  # fmt: skip
    lines = contents_of(tmp_path).lines()
    assert any("Execution Trace" in line and "join the trace" in line for line in lines)
    assert any("profiles of JAX" in line for line in lines)


def test_the_only_report_of_ncu_belongs_to_the_only_trace(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(TRACE)
    (tmp_path / "step.csv").write_text(
        '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","k","m","","1"\n'
    )
    found = contents_of(tmp_path)
    assert found.counters == {tmp_path / "trace.json": tmp_path / "step.csv"}
    assert found.read == [tmp_path / "trace.json"]
    (tmp_path / "other.json").write_text(TRACE)
    assert not contents_of(tmp_path).counters  # nobody can say which trace it is of


def test_a_folder_without_profiles_says_what_is_in_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="It is empty"):
        contents_of(tmp_path)
    (tmp_path / "notes.txt").write_text("The step took 12 ms.\n")
    with pytest.raises(InputError, match=r"notes\.txt: not a profile; left out"):
        contents_of(tmp_path)


def test_the_command_says_it_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s_cuda_gpu_kern_sum.csv").write_text(SUMS)
    (tmp_path / "notes.txt").write_text("The step took 12 ms.\n")
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path), "--format", "none"])
    said = capsys.readouterr()
    assert not ended.value.code
    assert "notes.txt: not a profile; left out" in said.err and "3 kernel calls take" in said.out
