"""Output of `ncu --csv`: raw and details pages by names, whatever the order of columns; foreign files refused."""

from __future__ import annotations

import csv
import io
import math
import stat
from pathlib import Path

import pytest

from perfkit.errors import InputError, Unavailable
from perfkit.readers import read
from perfkit.readers.ncu import child, labels, pages
from perfkit.table import KernelTable
from tests.support.packed import ncu_file
from tests.support.readers.ncu_reports import whole

KERNEL = "void at::native::add<float, (int)4>(int, T2)"
RAW = {
    "ID": ("", "0", "1"),
    "Process ID": ("", "7", "7"),
    "Kernel Name": ("", KERNEL, "k(int)"),
    "Stream": ("", "13", "13"),
    "Block Size": ("", "(256, 1, 1)", "(32, 2, 1)"),
    "Grid Size": ("", "(1,056, 1, 1)", "(8, 1, 1)"),
    "CC": ("", "9.0", "9.0"),
    "Id:Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg": (
        "", "0:perfkit:perfkit:pass:forward:none:none:none:none:none:none", ""),
    "gpu__time_duration.sum": ("usecond", "1,250.5", "2"),
    "dram__bytes_read.sum": ("Mbyte", "1.5", "n/a"),
    "dram__bytes_write.sum": ("Kbyte", "500", ""),
    "dram__bytes.sum.peak_sustained": ("byte/cycle", "1,536", "1,536"),
    "dram__cycles_elapsed.avg.per_second": ("Ghz", "2.6", "2.6"),
    "launch__registers_per_thread": ("register/thread", "32", "16"),
}  # fmt: skip


def text(columns: dict[str, tuple[str, ...]], order: list[str] | None = None) -> str:
    order = order or list(columns)
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(order)
    writer.writerows(zip(*(columns[name] for name in order), strict=True))
    return out.getvalue()


def made(folder: Path, content: str) -> KernelTable:
    path = folder / "page.txt"
    path.write_text(content)
    source = read(path)
    assert isinstance(source, KernelTable)
    return source


@pytest.mark.parametrize("turned", [False, True])
def test_the_raw_page_by_name(tmp_path: Path, turned: bool) -> None:
    order = sorted(RAW, reverse=True) if turned else None
    if turned:  # the header is known by its ID column, which comes first
        order = ["ID", *(name for name in order or [] if name != "ID")]
    frame = made(tmp_path, f"==PROF== Connected\nstep 1, loss 3.4\n{text(RAW, order)}").frame
    assert frame["short_name"].tolist() == ["add", "k"] and frame["stream"].tolist() == [13, 13]
    assert frame["duration_ns"].tolist() == [1_250_500.0, 2000.0]
    assert frame["dram_bytes"][0] == 2e6 and math.isnan(frame["dram_bytes"][1])
    assert frame["block_x"].tolist() == [256, 32] and frame["pass"][0] == "forward"


def test_the_details_page_by_label_and_unit(tmp_path: Path) -> None:
    columns = ["ID", "Kernel Name", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name",
               "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]  # fmt: skip
    lines = [
        ("GPU Speed Of Light Throughput", "Duration", "ms", "1.5", "", "", "", "", ""),
        ("GPU Speed Of Light Throughput", "DRAM Throughput", "%", "50", "", "", "", "", ""),
        ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "50", "", "", "", "", ""),
        ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "1,000", "", "", "", "", ""),
        ("Command line profiler metrics", "smsp__inst_executed.sum", "Kinst", "4", "", "", "", "", ""),
        ("Occupancy", "Achieved Occupancy", "%", "75", "", "", "", "", ""),
        ("Occupancy", "", "", "", "Rule", "OPT", "See @section:X:that@.", "local", "12.5"),
    ]
    rows = {
        name: tuple(row[i] for row in [("0", KERNEL, "8.0", *line) for line in lines]) for i, name in enumerate(columns)
    }
    table = made(tmp_path, text(rows))
    row = table.frame.iloc[0]
    assert row["duration_ns"] == 1.5e6 and row["dram_bytes"] == pytest.approx(1.5e9) and row["dram_origin"] == "derived"
    assert row["occupancy"] == 0.75 and row["instructions"] == 4000
    assert table.facts["row_ceilings"]["memory"] == [pytest.approx(2e12)]
    assert table.facts["kernels"][0]["rules"][0]["text"] == "See that."


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1,234.5", 1234.5), ("1.234,5", 1234.5), ("1,234", 1234), ("12", 12), ("n/a", math.nan), ("", math.nan)],
)
def test_numbers(cell: str, value: float) -> None:
    assert pages.number(cell) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (KERNEL, "add"), ("k", "k"), ("ns::<unnamed>::f<(anonymous namespace)::G>(int)", "f"), ("_Z3foov", "_Z3foov"),
        ("", ""), ("(((", "((("),
    ],
)  # fmt: skip
def test_function_names(name: str, short: str) -> None:
    assert labels.function_name(name) == short


def test_lines_that_do_not_fit_are_told(tmp_path: Path) -> None:
    table = made(tmp_path, text(RAW) + "a stray line\n==PROF== Disconnected\n")
    assert len(table) == 2 and "1 lines of the CSV do not fit its header and were left out" in table.warnings


@pytest.mark.parametrize(
    "content", ["a,b\n1,2\n", '"ID","Kernel Name"\n', "plain words", '"ID","Kernel Name"\n"' + "x" * 200_000]
)
def test_foreign_and_empty_files_are_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError):
        made(tmp_path, content)


def fake_ncu(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = folder / "ncu"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(child, "package_folder", lambda: None)
    path = folder / "a.ncu-rep"
    path.write_bytes(whole())
    return path


def test_without_the_package_the_tool_reads_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three = {name: (*cells, cells[-1]) for name, cells in RAW.items()}
    (tmp_path / "raw.csv").write_text(text(three))
    path = fake_ncu(tmp_path, f'echo "$@" > {tmp_path}/arguments; cat {tmp_path}/raw.csv', monkeypatch)
    table = read(path)
    assert isinstance(table, KernelTable) and len(table) == 3
    assert (tmp_path / "arguments").read_text().startswith(f"--import {path} --csv --page raw")


def test_with_neither_package_nor_tool_both_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_ncu(tmp_path, "", monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(Unavailable, match="ncu-report, or ncu itself on the PATH"):
        read(path)


def test_the_tool_is_not_asked_about_a_damaged_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_ncu(tmp_path, f"touch {tmp_path}/asked", monkeypatch)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="ends 5 bytes early"):
        read(path)
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo '==ERROR== bad file'; exit 1", "==ERROR== bad file"),
        ("cat raw.csv", "not a page that ncu printed"),
        ("cat {raw}", "states 3 results, ncu reads 2"),
    ],
)
def test_a_tool_that_fails_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, why: str) -> None:
    (tmp_path / "raw.csv").write_text(text(RAW))
    path = fake_ncu(
        tmp_path, body.replace("{raw}", str(tmp_path / "raw.csv")).replace("cat raw.csv", "true"), monkeypatch
    )
    with pytest.raises(InputError, match=why):
        read(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_redirected_page_may_have_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "page.txt"
    path.write_bytes(text(RAW).encode(encoding))
    assert len(read(path)) == 2  # type: ignore[arg-type]


def _details(change: str) -> str:
    """The details page of seven kernels of an H200 with one damage."""
    rows = list(csv.reader(io.StringIO(ncu_file("kernels-full.details.csv").decode())))
    if change.startswith("without "):
        column = rows[0].index(change.removeprefix("without "))
        rows = [line[:column] + line[column + 1 :] for line in rows]
    elif change == "cut":
        starts = [i for i, line in enumerate(rows) if line[0] == "3"]
        rows = rows[: starts[len(starts) // 2]]
    elif change:
        one, other = (rows[0].index(title) for title in change.split("/"))
        rows[0][one], rows[0][other] = rows[0][other], rows[0][one]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("without Grid Size", "the grid or block of some kernels"),
        ("Host Name/Grid Size", "the grid or block of some kernels"),
        ("without Metric Unit", "no unit that can be read for dram__cycles_elapsed.avg.per_second"),
        ("Metric Unit/Rule Description", "no unit that can be read"),
        ("Stream/Metric Value", "implausible: kernel 0"),
        ("cut", "the last kernel of the page lacks sections"),
    ],
)
def test_damage_to_a_details_page_is_told(tmp_path: Path, change: str, said: str) -> None:
    sound = made(tmp_path, _details(""))
    assert not any(said in warning for warning in sound.warnings)
    damaged = made(tmp_path, _details(change))
    assert any(said in warning for warning in damaged.warnings)
    if "Unit" in change:
        assert damaged.frame["duration_ns"].isna().all() and damaged.frame["shared_bytes"].isna().all()


@pytest.mark.parametrize("fired", [0, 1])
def test_a_rule_that_did_not_apply_to_a_kernel_is_no_missing_section(tmp_path: Path, fired: int) -> None:
    """Rules stand under a section's identifier, metrics under its title."""
    head = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC", "Section Name", "Metric Name"]
    rows = [[*head, "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description"]]
    for i in range(2):
        key = [str(i), "1", f"kernel_{i}", "(256, 1, 1)", "(1080, 1, 1)", "8.0"]
        rows.append([*key, "GPU Speed Of Light Throughput", "Duration", "us", "56.06", "", "", ""])
        if i == fired:
            rows.append([*key, "PmSampling", "", "", "", "PmSamplingRule", "INF", "The interval is large."])
        rows.append([*key, "Source Counters", "Branch Efficiency", "%", "98.78", "", "", ""])
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    assert not any("cut off" in said for said in made(tmp_path, out.getvalue()).warnings)


@pytest.mark.parametrize("cell", ["(1056, 2, 3)", "(1,056, 2, 3)", "(1056,2,3)", "1056 2 3"])
def test_sizes_as_the_tool_or_another_writes_them(cell: str) -> None:
    assert pages._sizes(cell) == [1056.0, 2.0, 3.0]
    assert pages._sizes("127.0.0.1") == [] == pages._sizes("")
