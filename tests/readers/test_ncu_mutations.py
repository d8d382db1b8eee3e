"""Damaged reports of Nsight Compute and pages of its CSV: refused, or read and what is wrong is said.

A few dozen of each here, some hundred in `make test-full`;
`benchmarks/reading/damaged_profiles.py` takes 2000 of every format.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from perfkit.analysis.report.analyse import analyse_any
from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.readers.ncu import container, plausible
from perfkit.readers.ncu.results import NcuResult
from perfkit.render import html, terminal
from perfkit.table import KernelTable
from tests.support.packed import ncu_file
from tests.support.readers import mutations
from tests.support.readers.ncu_reports import result


def many(few: int, all_of_them: int) -> pytest.MarkDecorator:
    """Return the number of seeds to try: a few, and in `make test-full` all of them."""
    return pytest.mark.parametrize("seeds", [few, pytest.param(all_of_them, marks=pytest.mark.full)])


def fixture(name: str) -> bytes:
    return ncu_file(f"kernels-{name}")


@pytest.fixture(scope="module")
def report() -> bytes:
    return fixture("metrics.ncu-rep")


def written(folder: Path, data: bytes, name: str = "a.ncu-rep") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@many(100, 400)
def test_a_damaged_report_is_whole_or_refused(tmp_path: Path, report: bytes, seeds: int) -> None:
    refused = 0
    for seed in range(seeds):
        path = written(tmp_path, mutations.of_report(report, random.Random(seed))[1])
        try:
            assert container.check(path).results > 0
        except InputError:
            refused += 1
    assert refused > seeds * 0.1


def test_the_fixture_is_taken_apart_and_put_together_again(report: bytes) -> None:
    assert mutations.report(*mutations.blocks(report)) == report


@many(12, 40)
def test_a_damaged_report_is_read_or_refused(tmp_path: Path, report: bytes, seeds: int) -> None:
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    for seed in range(seeds):
        path = written(tmp_path, mutations.of_report(report, random.Random(1000 + seed))[1])
        with contextlib.suppress(InputError):
            table = read(path)
            assert isinstance(table, KernelTable) and len(table.check())


@many(24, 80)
@pytest.mark.parametrize("page", ["raw", "details"])
def test_damaged_pages_are_read_or_refused(tmp_path: Path, page: str, seeds: int) -> None:
    data = fixture(f"metrics.{page}.csv")
    for seed in range(seeds):
        path = written(tmp_path, mutations.of_page(data, random.Random(seed))[1], "a.csv")
        with contextlib.suppress(InputError):
            table = read(path)
            assert isinstance(table.check(), KernelTable)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", mutations.HOSTILE)
def test_hostile_names_are_harmless_in_every_output(tmp_path: Path, name: str) -> None:
    rows = fixture("metrics.raw.csv").decode().replace('"copy_strided"', '"' + name.replace('"', '""') + '"')
    path = written(tmp_path, rows.encode(), "a.csv")
    found = analyse_any(read(path), path)
    page, text = html.render(found), terminal.render(found)
    assert "<script>alert" not in page and "<img src=x" not in page
    assert not any(c in text for c in "\x1b\x07\x00\u202e") and "\x1b" not in page


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"gpu__time_duration.sum": 0.0}, "0 is not a duration"),
        ({"gpu__time_duration.sum": -5.0}, "-5 is not a duration"),
        ({"launch__grid_size": 129.0}, "the number of blocks is 129, and 128"),
        ({"launch__thread_count": 1.0}, "the number of threads"),
        ({"launch__sm_count": 5.0}, "the number of multiprocessors is 5, and 132"),
        ({"device__attribute_compute_capability_major": 2.0}, "2 is not a compute capability"),
        ({"device__attribute_fb_bus_width": 7.0}, "7 is not a width of the memory bus"),
        ({"launch__registers_per_thread": 4000.0}, "4000 is not registers a thread"),
        ({"sm__cycles_elapsed.avg.per_second": 9e12}, "the multiprocessors ran at"),
        ({"sm__warps_active.avg.pct_of_peak_sustained_active": 130.0}, "an occupancy of 130.0 % was reached"),
        ({"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 150.0}, "sustained_elapsed is 150"),
        ({"dram__bytes_read.sum": 1e12, "dram__bytes_write.sum": 0.0}, "more DRAM traffic than the memory can move"),
        ({"smsp__inst_executed.sum": -1.0}, "smsp__inst_executed.sum is -1"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_named(values: dict[str, float], why: str) -> None:
    plain = result(launch__grid_dim_z=1.0)
    doubtful = NcuResult(name="k", function="k", values={**plain.values, **values})
    assert not any(why in said for said in plausible.doubts([plain]))
    assert any(why in said for said in plausible.doubts([doubtful]))


@pytest.mark.parametrize("value", [0.0, 1e308, 5e-324, -1.0])
def test_any_value_can_be_doubted(value: float) -> None:
    plain = result()
    names = [name for name, stored in plain.values.items() if isinstance(stored, float)]
    assert names
    for name in names:
        said = plausible.doubts([result(), NcuResult(name="k", function="k", values={**plain.values, name: value})])
        assert all(isinstance(text, str) and text for text in said)
    assert plausible.doubts([NcuResult(name="k", function="k", values=dict.fromkeys(names, value))])


def test_many_doubts_are_counted() -> None:
    many = [result(launch__registers_per_thread=4000.0) for _ in range(20)]
    said = plausible.doubts(many)
    assert len(said) == 6 and said[-1] == "implausible: and 15 more"


def test_numbers_of_kernels_with_gaps_and_lines_cut_off_are_told(tmp_path: Path) -> None:
    lines = fixture("metrics.raw.csv").decode().splitlines(keepends=True)
    for data, why in (
        ([*lines[:4], *lines[5:]], "have gaps or repeat"),
        ([*lines, lines[-1]], "have gaps or repeat"),
        ([lines[0], *lines[2:]], "has no line of units"),
        ([*lines[:-1], lines[-1].rstrip()[:-1]], "cut off within its last line"),
    ):
        warnings = read(written(tmp_path, "".join(data).encode(), "a.csv")).warnings  # type: ignore[union-attr]
        assert any(why in said for said in warnings), warnings
    for whole in ("".join(lines), "".join(lines).rstrip()):  # an editor or a shell may drop the last line's end
        warnings = read(written(tmp_path, whole.encode(), "a.csv")).warnings  # type: ignore[union-attr]
        assert not any("gaps" in said or "cut off" in said for said in warnings)
