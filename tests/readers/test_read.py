"""The content of a file decides its kind; anything else gets a sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from perfkit.errors import InputError
from perfkit.readers import read, read_run, tables_of
from perfkit.readers.run import Run
from perfkit.run_folder import BackendRun, Manifest, Settings, WorkloadFacts, write_manifest
from perfkit.table import KernelTable
from tests.support.readers import mutations
from tests.support.readers.traces import op, training_step, write


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "some.file", training_step())


def test_a_trace_plain_gzipped_or_as_a_bare_list(tmp_path: Path, trace: Path) -> None:
    zipped = write(tmp_path / "zipped.bin", training_step(), compressed=True)
    bare = tmp_path / "bare"
    bare.write_text("\n " + json.dumps(training_step()))
    tables = [read(p) for p in (trace, str(zipped), bare)]
    assert all(isinstance(t, KernelTable) for t in tables)
    assert [len(t) for t in tables] == [10, 10, 10]
    assert {tuple(t.frame["duration_ns"]) for t in tables} == {tuple(tables[0].frame["duration_ns"])}


def test_a_kernel_table_comes_back_as_written(tmp_path: Path, trace: Path) -> None:
    table = read(trace)
    assert isinstance(table, KernelTable)
    table.write(tmp_path / "kernels.parquet")
    again = read(tmp_path / "kernels.parquet")
    assert isinstance(again, KernelTable)
    assert again.frame.equals(table.frame)
    assert again.facts == table.facts
    assert tables_of(again) == {"profile": again}


def _whole(tmp_path: Path) -> bytes:
    return write(tmp_path / "whole.json", training_step()).read_bytes()


@pytest.mark.parametrize("count", [15, pytest.param(100, marks=pytest.mark.full)])
def test_a_damaged_kernel_table_is_a_sentence(count: int, tmp_path: Path, trace: Path) -> None:
    table = read(trace)
    assert isinstance(table, KernelTable)
    table.write(tmp_path / "kernels.parquet")
    whole = (tmp_path / "kernels.parquet").read_bytes()
    assert mutations.sentences(tmp_path / "damaged.parquet", whole, count, seed=6)


def test_every_truncation_gets_a_sentence(tmp_path: Path) -> None:
    whole = _whole(tmp_path)
    path = tmp_path / "cut"
    for length in range(1, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"not a torch\.profiler trace, or it is damaged"):
            read(path)


def test_every_truncation_of_a_gzip_gets_a_sentence(tmp_path: Path) -> None:
    whole = gzip.compress(_whole(tmp_path))
    path = tmp_path / "cut.gz"
    for length in range(2, len(whole) - 1, 11):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="damaged"):
            read(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"hello", "not a profile that perfkit knows"),
        (b"NVR\0\x01", "damaged Nsight Compute report"),
        (b"PAR1garbage", "not a kernel table"),
        (b"{}", "not a torch.profiler trace"),
        (b'{"traceEvents": 3}', "no list of events"),
        (b'{"traceEvents": [1, 2]}', "its list holds no events"),
        (b'{"traceEvents": [{"name": "\xff\xfe"}]}', "damaged"),
        (b"[" * 100_000, "damaged"),
        (gzip.compress(b"no json", mtime=0), "is compressed by gzip"),
    ],
)
def test_anything_else_gets_a_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence) as error:
        read(path)
    assert error.value.message.endswith(".")


def test_missing_paths_and_foreign_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "nothing")
    with pytest.raises(InputError, match="not a run folder"):
        read(tmp_path)


def test_an_event_of_the_wrong_type_is_left_out_and_reported(tmp_path: Path) -> None:
    events = [*training_step(), {"ph": "X", "cat": "cpu_op", "name": 3, "ts": "soon"}]
    table = read(write(tmp_path / "t", events))
    assert isinstance(table, KernelTable)
    assert len(table) == 10
    assert any("1 of 32 events" in w for w in table.warnings)


def test_an_empty_trace_gives_an_empty_table_with_a_warning(tmp_path: Path) -> None:
    table = read(write(tmp_path / "t", []))
    assert isinstance(table, KernelTable)
    assert len(table) == 0
    assert any("no operators" in w for w in table.warnings)


def test_shapes_of_the_wrong_kind_cost_nothing_but_the_cost(tmp_path: Path) -> None:
    strange = op("aten::mm", 0, 5, **{"Input Dims": "no", "Input type": [1, {}], "Concrete Inputs": None})
    table = read(write(tmp_path / "t", [strange]))
    assert isinstance(table, KernelTable)
    assert table.frame["bytes_read"].isna().all()


def manifest() -> Manifest:
    return Manifest(
        perfkit="0.1.0",
        created="2026-01-01T00:00:00Z",
        command=["perfkit", "run"],
        settings=Settings(workload="gpt2", preset="tiny", batch_size=1),
        workload=WorkloadFacts(title="gpt2", parameters=1, samples_per_step=1),
        backends=[BackendRun(name="eager"), BackendRun(name="compile"), BackendRun(name="thunder", status="failed")],
    )


@pytest.fixture
def folder(tmp_path: Path, trace: Path) -> Path:
    run = tmp_path / "run"
    for name in ("eager", "compile"):
        (run / name).mkdir(parents=True)
        table = read(trace)
        assert isinstance(table, KernelTable)
        table.write(run / name / "kernels.parquet")
    (run / "ceilings.json").write_text('{"bandwidth": []}')
    write_manifest(run, manifest())
    return run


def test_a_run_folder_with_all_its_tables(folder: Path) -> None:
    run = read(folder)
    assert isinstance(run, Run)
    assert list(tables_of(run)) == ["eager", "compile"]
    assert run.ceilings == {"bandwidth": []}
    assert run.problems == {}
    assert "gpt2" in repr(run)
    by_manifest = read(folder / "run.json")
    assert isinstance(by_manifest, Run) and by_manifest.folder == folder


def test_missing_and_damaged_parts_are_warnings_in_their_place(folder: Path) -> None:
    (folder / "eager" / "kernels.parquet").write_bytes(b"PAR1 and nothing")
    (folder / "compile" / "kernels.parquet").unlink()
    (folder / "ceilings.json").write_text("{")
    run = read_run(folder)
    assert run.tables == {}
    assert "damaged" in run.problems["eager"][0]
    assert "missing" in run.problems["compile"][0]
    assert "ceilings.json is damaged" in run.problems[""][0]
    assert "thunder" not in run.problems  # it failed: no table was promised


@pytest.mark.parametrize("content", ["[]", "3", "null"])
def test_ceilings_that_are_no_object_are_damaged(folder: Path, content: str) -> None:
    (folder / "ceilings.json").write_text(content)
    run = read_run(folder)
    assert run.ceilings is None and "ceilings.json is damaged" in run.problems[""][0]


def test_a_run_without_ceilings_says_so(folder: Path) -> None:
    (folder / "ceilings.json").unlink()
    run = read_run(folder)
    assert run.ceilings is None
    assert "no ceilings.json" in run.problems[""][0]


def test_a_damaged_manifest_is_an_error(folder: Path) -> None:
    whole = (folder / "run.json").read_bytes()
    for length in range(0, len(whole) - 1, 53):
        (folder / "run.json").write_bytes(whole[:length])
        with pytest.raises(InputError, match="damaged"):
            read(folder)


def test_a_newer_run_is_refused(folder: Path) -> None:
    newer = msgspec.structs.replace(manifest(), schema=99)
    write_manifest(folder, newer)
    with pytest.raises(InputError, match="newer perfkit"):
        read(folder)
