"""Exports of Nsight Systems: what hand-made files give, worked out by hand."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.readers.nsys.database import opened
from perfkit.table import KernelTable
from tests.support.readers.nsys_exports import (
    CALL,
    COPY,
    FILL,
    GRAPH,
    KERNEL,
    OTHER_PROCESS,
    PROCESS,
    RANGE,
    THREAD,
    Strings,
    Tables,
    call,
    copy,
    kernel,
    nvtx,
    table_of,
    two_steps,
    without,
    write,
)  # fmt: skip


def absent(value: object) -> bool:
    return bool(pd.isna(value))


def test_rows_are_what_ran_on_the_gpu_by_start(tmp_path: Path) -> None:
    frame = table_of(tmp_path, two_steps()).frame
    copied = "Memcpy HtoD (Pageable -> Device)"
    long = "void first<float>(float*)"
    assert frame["name"].tolist() == [long, "second", "third", copied, long, "elsewhere"]
    assert frame["short_name"].tolist()[:2] == ["first", "second"]
    assert frame["kind"].tolist() == ["gpu_kernel"] * 3 + ["memcpy"] + ["gpu_kernel"] * 2
    assert frame["start_ns"].tolist() == [0, 190, 550, 770, 1150, 2850]
    assert frame["duration_ns"].tolist() == [100, 60, 100, 30, 200, 100]
    first = frame.iloc[0]
    assert [first[c] for c in ("grid_x", "grid_y", "block_x", "registers", "shared_bytes")] == [4, 2, 128, 32, 1536]
    assert absent(frame.iloc[3]["grid_x"]) and first["device"] == "cuda:0" and first["stream"] == 7


def test_a_row_lies_where_it_was_launched(tmp_path: Path) -> None:
    """`third` was launched by a thread without ranges: step and pass are those of the steps' thread at that time."""
    frame = table_of(tmp_path, two_steps()).frame
    assert frame["step"].tolist()[:5] == [0, 0, 0, 0, 1] and absent(frame["step"].iloc[5])
    assert frame["pass"].tolist()[:4] == ["forward", "forward", "backward", "backward"]
    assert frame["pass"].isna().tolist()[4:] == [True, True]
    assert frame["module"].iloc[0] == "h.0" and frame["module"].isna().sum() == 5
    assert frame["range"].iloc[0] == "my range" and frame["range"].isna().sum() == 5
    assert frame["placed_by"].tolist() == ["range"] * 4 + ["none"] * 2


def test_busy_and_idle_add_up_to_the_steps(tmp_path: Path) -> None:
    facts = table_of(tmp_path, two_steps()).facts
    assert (facts["steps"], facts["step_ns"], facts["busy_ns"]) == (2, [1000, 1000], [290, 200])
    gaps = Counter()
    for gap in facts["gaps"]:
        gaps[gap["cause"]] += gap["ns"]
    assert gaps == {"host code": 730, "sync": 390, "latency": 220, "CUDA allocation": 100, "launch": 70}
    assert sum(gaps.values()) + sum(facts["busy_ns"]) == sum(facts["step_ns"])


def test_facts_of_ranges_copies_waits_and_devices(tmp_path: Path) -> None:
    facts = table_of(tmp_path, two_steps()).facts
    ranges = {r["name"]: r for r in facts["ranges"]}
    assert ranges["my range"] == {"name": "my range", "count": 1, "host_ns": 220, "kernels": 1, "kernel_ns": 100}
    assert (ranges["perfkit:step:0"]["kernels"], ranges["perfkit:step:0"]["kernel_ns"]) == (2, 160)
    assert "a mark" not in ranges
    copied = {"name": "Memcpy HtoD (Pageable -> Device)", "direction": "HtoD", "count": 1, "bytes": 4096, "ns": 30}
    assert facts["copies"] == [copied]
    assert facts["synchronisation"] == [{"kind": "cudaStreamSynchronize", "count": 1, "ns": 380}]
    device = {"device": "cuda:0", "activities": 6, "kernels": 5, "span_ns": 2950, "busy_ns": 590, "kernel_ns": 560}
    assert facts["devices"] == [device]
    assert facts["gpus"][0]["name"] == "Tesla T4" and facts["gpus"][0]["compute_capability"] == "7.5"
    assert facts["capture"] == {"schema": "3.20.2"}


def test_without_marked_steps_the_capture_is_one(tmp_path: Path) -> None:
    table = table_of(tmp_path, {**two_steps(), RANGE: []})
    assert (table.facts["step_ns"], table.facts["busy_ns"]) == ([2950], [590])
    assert sum(gap["ns"] for gap in table.facts["gaps"]) == 2950 - 590
    said = " ".join(table.warnings)
    assert "marks no steps" in said and "no NVTX ranges" in said
    assert table.frame["step"].isna().all() and (table.frame["placed_by"] == "none").all()


def test_overlapping_kernels_are_busy_once(tmp_path: Path) -> None:
    s = Strings()
    kernels = [kernel(s, "a", 0, 100, 1), kernel(s, "b", 50, 120, 2, streamId=8), kernel(s, "c", 60, 70, 3, streamId=9)]
    other = kernel(s, "d", 500, 600, 4, deviceId=1)
    facts = table_of(tmp_path, {KERNEL: [*kernels, other], "StringIds": s.rows()}).facts
    assert (facts["step_ns"], facts["busy_ns"]) == ([600], [220])
    assert [d["busy_ns"] for d in facts["devices"]] == [120, 100]
    assert facts["gaps"] == [{"cause": "other", "pass": None, "ns": 380, "count": 1}]


def test_nested_calls_and_ranges_of_one_name_count_once(tmp_path: Path) -> None:
    s = Strings()
    tables = {
        KERNEL: [kernel(s, "k", 100, 150, 1)],
        # A driver call inside the runtime call, with the same correlation id, on the same thread.
        CALL: [call(s, "cudaLaunchKernel", 20, 60, 1), call(s, "cuLaunchKernel", 30, 50, 1)],
        RANGE: [
            nvtx("perfkit:step:0", 0, 200),
            nvtx("same", 5, 90),
            nvtx("same", 10, 80),
            nvtx("over before", 11, 15),
            nvtx("ends in between", 12, 70, kind=60),
            nvtx("another thread", 0, 200, thread=THREAD + 1),
        ],
        "StringIds": s.rows(),
    }
    table = table_of(tmp_path, tables)
    assert table.frame["range"].iloc[0] == "same/same/ends in between"
    ranges = {r["name"]: (r["count"], r["kernels"], r["kernel_ns"]) for r in table.facts["ranges"]}
    assert ranges["same"] == (2, 1, 50) and ranges["another thread"] == (1, 0, 0) and ranges["over before"] == (1, 0, 0)
    gaps = {gap["cause"]: gap["ns"] for gap in table.facts["gaps"]}
    assert gaps == {"host code": 70, "launch": 40, "latency": 40}


def test_what_was_launched_before_the_gpu_fell_idle_is_queued(tmp_path: Path) -> None:
    s = Strings()
    tables = {
        KERNEL: [kernel(s, "a", 30, 100, 1), kernel(s, "b", 104, 200, 2)],
        CALL: [call(s, "cudaLaunchKernel", 10, 20, 1), call(s, "cudaLaunchKernel", 40, 50, 2)],
        RANGE: [nvtx("perfkit:step:0", 0, 200)],
        "StringIds": s.rows(),
    }
    gaps = {gap["cause"]: gap["ns"] for gap in table_of(tmp_path, tables).facts["gaps"]}
    assert gaps == {"host code": 10, "launch": 10, "latency": 10, "queued": 4}


def test_ranges_with_text_by_id_negative_start_and_no_end(tmp_path: Path) -> None:
    s = Strings()
    opened_before = nvtx("", -500, None, textId=s("whole program")) | {"text": None}
    operator = nvtx("aten::addmm, seq = 4, op_id = 10", 5, 50)
    tables = {
        KERNEL: [kernel(s, "k", 100, 150, 1)],
        CALL: [call(s, "cudaLaunchKernel", 20, 30, 1)],
        RANGE: [opened_before, operator],
        "StringIds": s.rows(),
    }
    table = table_of(tmp_path, tables)
    assert table.frame["range"].iloc[0] == "whole program/aten::addmm, seq = 4, op_id = 10"
    assert table.frame["operator"].iloc[0] == "aten::addmm"
    assert any("1 NVTX range" in w and "never ended" in w for w in table.warnings)


def test_a_graph_replay_is_a_row_unless_its_kernels_are(tmp_path: Path) -> None:
    s = Strings()
    replay = {
        "start": 0, "end": 1000, "deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": PROCESS, "graphId": 4,
    }  # fmt: skip
    tables: Tables = {
        GRAPH: [replay, {**replay, "start": 2000, "end": 2500, "correlationId": 2}],
        CALL: [call(s, "cudaGraphLaunch_v10000", 1900, 1950, 2)],
        RANGE: [nvtx("replayed", 1800, 1990)],
        "StringIds": s.rows(),
    }
    table = table_of(tmp_path, tables)
    replayed = {"name": "replayed", "count": 1, "host_ns": 190, "kernels": 1, "kernel_ns": 500}
    assert table.facts["ranges"] == [replayed]
    assert table.frame["name"].tolist() == ["CUDA graph 4"] * 2 and set(table.frame["kind"]) == {"graph"}
    assert table.facts["busy_ns"] == [1500]
    assert any("--cuda-graph-trace=node" in w for w in table.warnings)
    tables |= {KERNEL: [kernel(s, "inside", 0, 400, 1, graphNodeId=1)], "StringIds": s.rows()}
    (tmp_path / "profile").unlink()
    assert table_of(tmp_path, tables).frame["name"].tolist() == ["inside", "CUDA graph 4"]


def test_bytes_of_copies_inside_the_device_and_of_fills(tmp_path: Path) -> None:
    fill = {"start": 20, "end": 30, "deviceId": 0, "streamId": 7, "correlationId": 2, "globalPid": PROCESS, "bytes": 64}
    tables = {
        COPY: [copy(0, 10, 1, 4096, 8, srcKind=2), copy(40, 50, 3, 100, 2), copy(60, 70, 4, 8, 99, srcKind=None)],
        FILL: [fill],
    }
    table = table_of(tmp_path, tables)
    frame = table.frame.set_index("name")
    inside = frame.loc["Memcpy DtoD (Device -> Device)"]
    assert (inside["bytes_read"], inside["bytes_written"], inside["bytes_origin"]) == (4096, 4096, "counter")
    filled = frame.loc["Memset (Device)"]
    assert (filled["bytes_read"], filled["bytes_written"]) == (0, 64)
    assert absent(frame.loc["Memcpy DtoH (Pageable -> Device)"]["bytes_written"])
    assert "Memcpy of unknown direction" in frame.index
    assert any("no kernels" in w for w in table.warnings)


@pytest.mark.parametrize(
    "column", ["globalPid", "streamId", "deviceId", "gridX", "demangledName", "staticSharedMemory"]
)
def test_a_missing_column_leaves_its_values_absent(tmp_path: Path, column: str) -> None:
    tables = two_steps()
    tables[KERNEL].pop()  # the other process's
    table = table_of(tmp_path, without(tables, KERNEL, column))
    assert len(table) == 5 and table.facts["busy_ns"] == [290, 200]
    # Without processes of the kernels the correlation id alone decides, and both processes have a call 1.
    assert table.frame["module"].notna().sum() in (0, 1)


def test_the_process_tells_equal_correlation_ids_apart(tmp_path: Path) -> None:
    tables = two_steps()
    tables[CALL].reverse()
    frame = table_of(tmp_path, tables).frame.set_index("name")
    assert frame.loc["elsewhere"]["range"] is pd.NA or absent(frame.loc["elsewhere"]["range"])
    assert frame["range"].notna().sum() == 1
    assert OTHER_PROCESS != PROCESS


def test_nsight_systems_own_warnings_are_passed_on(tmp_path: Path) -> None:
    said = [
        {"severity": 2, "text": "Not all CUDA events might have been collected."},
        {"severity": 1, "text": "CUDA injection initialized."},
        {"severity": 2, "text": "No OpenGL events collected."},
        {"severity": 4, "text": "Verbose words about CUDA."},
        {"severity": 3, "text": "The application terminated before the collection started."},
    ]
    warnings = table_of(tmp_path, {**two_steps(), "DIAGNOSTIC_EVENT": said}).warnings
    assert [w for w in warnings if "Nsight Systems says" in w] == [
        "Nsight Systems says: The application terminated before the collection started.",
        "Nsight Systems says: Not all CUDA events might have been collected.",
    ]


def test_what_was_not_collected_of_processes_without_cuda_is_no_news(tmp_path: Path) -> None:
    """A shell and its children use none, and each has such a line."""
    nothing = "No CUDA events collected. Does the process use CUDA?"
    late = "CUDA profiling might have not been started correctly."
    lost = "Not all CUDA events might have been collected."
    shell = 9 << 24
    said = [{"severity": 2, "text": text, "globalPid": shell} for text in (nothing, late, lost)]
    said += [{"severity": 2, "text": "No NVTX events collected. Does the process use NVTX?", "globalPid": PROCESS}]
    said += [{"severity": 2, "text": "CUDA device-side profiling is off.", "globalPid": None}]
    warnings = table_of(tmp_path, {**two_steps(), "DIAGNOSTIC_EVENT": said}).warnings
    assert [w.partition(" says: ")[2] for w in warnings if "Nsight Systems says" in w] == [
        lost, "No NVTX events collected. Does the process use NVTX?", "CUDA device-side profiling is off.",
    ]  # fmt: skip


def test_a_capture_of_nothing_passes_on_why(tmp_path: Path) -> None:
    said = [{"severity": 2, "text": "No CUDA events collected. Does the process use CUDA?"}]
    empty = {"StringIds": [{"id": 1, "value": "x"}], "META_DATA_EXPORT": [{"name": "a", "value": "b"}]}
    with pytest.raises(InputError, match=r"says: No CUDA events collected\. Does the process use CUDA\?"):
        table_of(tmp_path, {**empty, "DIAGNOSTIC_EVENT": said})


def test_migrations_of_unified_memory_have_no_call(tmp_path: Path) -> None:
    tables = two_steps()
    migration = {"streamId": 0, "correlationId": 0, "globalPid": PROCESS, "srcKind": 7, "dstKind": 7}
    tables[COPY] += [copy(1600, 1700, 0, 65536, kind, **migration) for kind in (11, 12)]
    table = table_of(tmp_path, tables)
    assert not [w for w in table.warnings if "launched outside" in w]
    assert [w for w in table.warnings if w.startswith("2 migrations of unified memory take 200 ns: ")]
    assert sum("unified" in name for name in table.frame["name"]) == 2


def test_copies_without_bytes_leave_those_of_others(tmp_path: Path) -> None:
    tables = {KERNEL: [kernel(Strings(), "k", 0, 5, 9)], COPY: [copy(0, 10, 1, 4096, 1), copy(20, 50, 2, 100, 1)]}
    tables[COPY][1]["bytes"] = None
    copies = table_of(tmp_path, tables).facts["copies"]
    assert [(c["count"], c["bytes"], c["ns"]) for c in copies] == [(1, None, 30), (1, 4096, 10)]


def test_times_as_of_the_epoch_and_times_that_cannot_be(tmp_path: Path) -> None:
    """`nsys export --ts-normalize` writes ns since 1970; a time days away from all others is damage."""
    epoch = 1_750_000_000 * 10**9
    s = Strings()
    kernels = [kernel(s, f"k{i}", epoch + 100 * i, epoch + 100 * i + 50, i) for i in range(5)]
    broken = [kernel(s, "x", epoch, a, 9) for a in (epoch - 1, 2**62, None, "soon")] + [kernel(s, "y", 5, 10, 9)]
    table = table_of(tmp_path, {KERNEL: [*kernels, *broken], "StringIds": s.rows()})
    assert (table.facts["step_ns"], table.facts["busy_ns"]) == ([450], [250])
    assert any(w.startswith(f"5 of 10 rows of {KERNEL} have impossible times") for w in table.warnings)


def test_without_gpu_activity_there_is_a_sentence(tmp_path: Path) -> None:
    tables = {name: rows for name, rows in two_steps().items() if name not in (KERNEL, COPY)}
    with pytest.raises(InputError, match=r"no GPU activity.*8 CUDA calls of the host.*nsys profile --trace cuda"):
        table_of(tmp_path, tables)


def test_a_foreign_database_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not an export of Nsight Systems"):
        table_of(tmp_path, {"people": [{"name": "a"}]})


def test_a_view_is_no_table(tmp_path: Path) -> None:
    """A view in place of a table could compute for ever."""
    path = write(tmp_path / "profile", {name: rows for name, rows in two_steps().items() if name != RANGE})
    with sqlite3.connect(path) as connection:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
        connection.execute(f"CREATE VIEW {RANGE} AS {endless}")
    connection.close()
    with opened(path) as database:
        assert RANGE not in database.tables and KERNEL in database.tables
    table = read(path)
    assert isinstance(table, KernelTable)
    assert table.warnings[0] == f"the file is damaged ({RANGE} is not a table): rows may be missing"


def test_the_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "profile", two_steps())
    path.chmod(0o444)
    before = path.read_bytes()
    read(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["profile"]
