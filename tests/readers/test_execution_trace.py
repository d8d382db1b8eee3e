"""An Execution Trace next to a torch.profiler trace: operators get the arguments that their events lack."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.readers.folder import contents_of
from perfkit.table import KernelTable
from tests.support.readers import mutations

COLUMNS = ["name", "shapes", "bytes_read", "bytes_written", "flop_matrix_fp32", "flop_vector_fp32"]


def work() -> None:
    """Call each operator several times: a single slow call of a composite would count as work of its own."""
    for _ in range(5):
        call()


def call() -> None:
    x, y = torch.ones(4, 16), torch.ones(4, 16)
    (x @ y.t()).contiguous().softmax(-1)
    torch.cat([x, y], 1).sum((0, 1))
    torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), padding=1)
    torch.nn.functional.pad(x.transpose(0, 1).mul(2.5), (1, 1))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with shapes, `shapes/trace.json`, and one of the same work without, next to its Execution Trace."""
    folder = tmp_path_factory.mktemp("recorded")
    for name in ("shapes", "both"):
        (folder / name).mkdir()
        observer = None
        if name == "both":
            observer = ExecutionTraceObserver()
            observer.register_callback(str(folder / name / "et.json"))
        with profile(
            activities=[ProfilerActivity.CPU], record_shapes=observer is None, execution_trace_observer=observer
        ) as profiler:
            work()
        profiler.export_chrome_trace(str(folder / name / "trace.json"))
    return folder


def table(path: Path) -> KernelTable:
    found = read(path)
    assert isinstance(found, KernelTable)
    return found


def test_shapes_strides_and_values_are_those_of_a_trace_with_shapes(recorded: Path) -> None:
    plain, both = (table(recorded / name / "trace.json") for name in ("shapes", "both"))
    assert plain.frame["bytes_read"].notna().any()
    assert both.frame[COLUMNS].equals(plain.frame[COLUMNS])
    assert any("operators come from et.json" in said for said in both.warnings)
    assert both.source["path"] == str(recorded / "both" / "trace.json")


def test_values_alone_are_added_where_shapes_are_there(recorded: Path, tmp_path: Path) -> None:
    document = json.loads((recorded / "both" / "trace.json").read_text())
    shapes = json.loads((recorded / "shapes" / "trace.json").read_text())["traceEvents"]
    known = iter([e["args"] for e in shapes if e.get("cat") == "cpu_op"])
    for event in document["traceEvents"]:
        if event.get("cat") == "cpu_op":
            event["args"] |= {k: v for k, v in next(known).items() if k in ("Input Dims", "Input type")}
    (tmp_path / "trace.json").write_text(json.dumps(document))
    shutil.copy(recorded / "both" / "et.json", tmp_path)
    assert (
        table(tmp_path / "trace.json").frame[COLUMNS].equals(table(recorded / "shapes" / "trace.json").frame[COLUMNS])
    )


@pytest.mark.parametrize("change", ["another process", "another recording", "damaged"])
def test_an_execution_trace_of_another_recording_is_left_alone(recorded: Path, tmp_path: Path, change: str) -> None:
    document = json.loads((recorded / "both" / "et.json").read_text())
    document["pid"] += change == "another process"
    for node in document["nodes"]:
        node["name"] += "_of_another" if change == "another recording" else ""
    text = json.dumps(document)
    (tmp_path / "et.json").write_text(text[: len(text) // 2] if change == "damaged" else text)
    shutil.copy(recorded / "both" / "trace.json", tmp_path)
    assert table(tmp_path / "trace.json").frame["shapes"].isna().all()


@pytest.mark.full
def test_damage_to_an_execution_trace_leaves_the_trace_readable(recorded: Path, tmp_path: Path) -> None:
    whole, chance = (recorded / "both" / "et.json").read_bytes(), random.Random(5)
    rows = len(table(recorded / "both" / "trace.json"))
    shutil.copy(recorded / "both" / "trace.json", tmp_path)
    for _ in range(100):
        (tmp_path / "et.json").write_bytes(mutations.of_bytes(whole, chance)[1])
        assert len(table(tmp_path / "trace.json")) == rows


def test_alone_it_is_a_sentence_and_in_a_folder_its_use_is_said(recorded: Path) -> None:
    with pytest.raises(InputError, match=r"is an Execution Trace .*\. Give the torch.profiler trace") as raised:
        read(recorded / "both" / "et.json")
    assert raised.value.exit_code == 2
    contents = contents_of(recorded / "both")
    assert [path.name for path in contents.read] == ["trace.json"]
    assert any("et.json: an Execution Trace" in line and "join the trace" in line for line in contents.lines())
