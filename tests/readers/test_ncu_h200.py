"""Reports of one program on an H200 in several sets: reports agree with their CSV pages and with what the kernels do.

The program (n = 2²⁴ floats): copy_coalesced copies n floats, fma_chains does four multiply-adds 4096 times a thread,
in ranges "step 0" and in it "forward" or "backward".
"""

from __future__ import annotations

import functools
import math

import pandas as pd
import pytest

from perfkit.readers import read
from perfkit.table import KernelTable
from tests.support.packed import ncu_file

SETS = ("full", "basic", "roofline", "metrics")
ELEMENTS, THREADS = 2**24, 132 * 16 * 256
# Precision of the raw page: 6 digits after the point in a scaled unit, and none where the unit is Kbyte.
RAW = {"dram_bytes": 1e3, "dram_read_bytes": 1e3, "dram_write_bytes": 1e3, "waves": 0.005}
DETAILS = {"duration_ns", "registers", "shared_bytes", "occupancy", "waves", "dram_bytes", "instructions"}


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("h200")

    @functools.cache
    def table(name: str) -> KernelTable:
        if name.endswith(".ncu-rep"):
            pytest.importorskip("ncu_report", reason="ncu-report is not installed")
        path = folder / name
        path.write_bytes(ncu_file(f"kernels-{name}"))
        found = read(path)
        assert isinstance(found, KernelTable)
        return found

    return table


@pytest.mark.parametrize("page", ["ncu-rep", "raw.csv", "details.csv"])
@pytest.mark.parametrize("name", SETS)
def test_ranges_are_path_pass_and_step(opened, name: str, page: str) -> None:
    frame = opened(f"{name}.{page}").frame
    assert frame["pass"].tolist() == ["forward"] * 4 + ["backward"] * 3
    assert frame["range"].tolist() == ["step 0/forward"] * 4 + ["step 0/backward"] * 3
    assert frame["step"].tolist() == [0] * 7 and set(frame["placed_by"]) == {"range"}


@pytest.mark.parametrize("name", SETS)
def test_a_report_and_its_raw_page_say_the_same(opened, name: str) -> None:
    report, page = opened(f"{name}.ncu-rep").frame, opened(f"{name}.raw.csv").frame
    for column in report:
        for exact, printed in zip(report[column], page[column], strict=True):
            if pd.isna(exact) or not isinstance(exact, float):
                assert (pd.isna(exact) and pd.isna(printed)) or exact == printed, column
            else:  # shares are printed in per cent with two to six decimals
                assert printed == pytest.approx(exact, rel=1e-4, abs=max(RAW.get(column, 0), 1e-6)), column


@pytest.mark.parametrize("name", ["full", "basic"])
def test_a_report_and_its_details_page_agree_to_the_printed_digits(opened, name: str) -> None:
    report, page = opened(f"{name}.ncu-rep").frame, opened(f"{name}.details.csv").frame
    assert page["short_name"].tolist() == report["short_name"].tolist()
    for column in DETAILS - ({"dram_bytes"} if name == "basic" else set()):
        for exact, printed in zip(report[column], page[column], strict=True):
            if not pd.isna(exact):
                assert printed == pytest.approx(exact, rel=5e-3, abs=5e-5), column


def test_known_work(opened) -> None:
    copy, fma = (opened("full.ncu-rep").frame.iloc[i] for i in (0, 4))
    assert copy["l2_read_bytes"] == copy["l2_write_bytes"] == 4 * ELEMENTS
    assert copy["dram_read_bytes"] == pytest.approx(4 * ELEMENTS, rel=1e-3)
    assert copy["dram_write_bytes"] < 4 * ELEMENTS  # L2 keeps what was written last
    assert copy["flop_vector_fp32"] == 0
    assert fma["flop_vector_fp32"] == 2 * 4 * 4096 * THREADS + 6 * THREADS  # and six additions a thread around the loop


def test_bytes_of_a_basic_report_are_those_of_the_counters(opened) -> None:
    full, basic = opened("full.ncu-rep").frame, opened("basic.ncu-rep").frame
    assert set(full["dram_origin"]) == {"counter"} and set(basic["dram_origin"]) == {"derived"}
    for counted, derived in zip(full["dram_bytes"], basic["dram_bytes"], strict=True):  # two runs of the program
        assert derived == pytest.approx(counted, rel=2e-3)


def test_ceilings_of_an_h200(opened) -> None:
    for name in ("full", "basic", "roofline"):
        facts = opened(f"{name}.ncu-rep").facts
        assert facts["ceilings"]["datasheet"]["memory"] == 4.8e12
        assert facts["row_ceilings"]["memory"][1] == pytest.approx(4.81e12, rel=2e-3)
        assert facts["max_clock_ceilings"]["memory"] == pytest.approx(4.8e12, rel=5e-3)
        assert facts["max_clock_ceilings"]["vector_fp32"] == pytest.approx(66.9e12, rel=1e-3)
        assert facts["max_clock_ceilings"]["matrix_bf16"] == pytest.approx(989.4e12, rel=1e-3)
    full = opened("full.ncu-rep")
    share = full.frame["flop_vector_fp32"] / full.frame["duration_ns"] * 1e9 / full.facts["row_ceilings"]["vector_fp32"]
    assert 0.9 < share[4] < 0.92 and not math.isnan(share[0])
    metrics = opened("metrics.ncu-rep").facts
    assert metrics["ceilings_hold"] == "at the maximum clock"  # no clocks were recorded: what the attributes say
    assert metrics["row_ceilings"]["memory"] == [pytest.approx(4.8e12, rel=5e-3)] * 7


def test_sections_have_the_names_of_the_details_page(opened) -> None:
    for name in ("full", "basic"):
        report, page = (opened(f"{name}.{kind}").facts["kernels"][0]["sections"] for kind in ("ncu-rep", "details.csv"))
        titled = {section for section in page if " " in section or section in report}
        assert titled <= set(report) and "Launch Statistics" in report


def test_what_metrics_alone_lack_is_named(opened) -> None:
    said = " ".join(opened("metrics.ncu-rep").warnings)
    assert (
        "SpeedOfLight_RooflineChart" in said
        and "Occupancy" in said
        and "DRAM clock" in said
        and "DRAM traffic" not in said
    )
