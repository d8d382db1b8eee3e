"""Ranges, copies and waits of a trace in the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit.analysis.report import accounting
from perfkit.analysis.report.analyse import analyse_any
from perfkit.analysis.step_results import RangeTime, Transfer, Wait
from perfkit.readers import read
from perfkit.render import markdown, output, terminal
from tests.support.readers.nsys_exports import two_steps, write

FACTS = {
    "devices": [{"kernel_ns": 300}, {"kernel_ns": 100}],
    "ranges": [
        {"name": "a", "count": 2, "host_ns": 50, "kernels": 3, "kernel_ns": 100},
        {"name": "launches nothing", "count": 1, "host_ns": 5, "kernels": 0, "kernel_ns": 0},
    ],
    "copies": [
        {"name": "Memcpy HtoD", "count": 2, "ns": 1000, "bytes": 4000},
        {"name": "Memcpy DtoH", "count": 1, "ns": 10, "bytes": None},
    ],
    "synchronisation": [{"kind": "cudaStreamSynchronize", "count": 4, "ns": 380}],
}


def test_shares_and_rates_are_ratios_of_sums() -> None:
    assert accounting.ranges(FACTS) == [RangeTime("a", 2, 50, 3, 100, 0.25)]
    copies = [Transfer("Memcpy HtoD", 2, 1000, 4000, pytest.approx(4e9)), Transfer("Memcpy DtoH", 1, 10, None, None)]
    assert accounting.transfers(FACTS) == copies
    assert accounting.waits(FACTS) == [Wait("cudaStreamSynchronize", 4, 380)]


def test_a_table_without_such_facts_has_none() -> None:
    assert (accounting.ranges({}), accounting.transfers({}), accounting.waits({})) == ([], [], [])


def test_the_report_of_a_capture_shows_them(tmp_path: Path) -> None:
    path = write(tmp_path / "profile.sqlite", two_steps())
    report = analyse_any(read(path), path)
    text = terminal.render(report)
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert "my range 1 220 1 100 17.9" in lines  # 100 of 560 ns of kernels
    assert "Shares are of the time of its kernels, without copies and fills." in " ".join(text.split())
    assert "Memcpy HtoD (Pageable -> Device) 1 30 4.10 136.5" in lines  # 4096 B in 30 ns
    assert "cudaStreamSynchronize 1 380" in lines
    for title in ("NVTX ranges by kernel time", "Copies", "Waits for the GPU"):
        assert title in text and title in markdown.render(report)
    account = report.backends[0].accounting
    assert account is not None
    assert account.kernel_ns + sum(gap.time_ns for gap in account.gaps) + account.other_ns == account.profiled_step_ns
    assert all(gap.text for gap in account.gaps)


@pytest.mark.browser
def test_the_page_shows_them(tmp_path: Path, open_page: Callable) -> None:
    path = write(tmp_path / "profile.sqlite", two_steps())
    (file,) = output.of_report(analyse_any(read(path), path)).write(tmp_path, ("html",))
    page, errors = open_page(file)
    card = page.locator("section.card", has_text="Ranges, copies and waits")
    assert card.locator("table").count() == 3
    row = card.locator("tr", has_text="my range").inner_text().split()
    assert row == ["my", "range", "1", "220", "1", "100", "17.9%"]
    assert not errors
