"""Words of a report for its profile, steps and tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit import table
from perfkit.analysis import source
from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.report.backend import _slowed
from perfkit.analysis.step_results import Accounting
from perfkit.readers import formats
from perfkit.readers.formats import nsys
from tests.support.analysis import profiles

NAMES = {
    "gh200-full-2025.1-3kernels.ncu-rep": "gh200-full-2025.1-3kernels",
    "t4-cupy-nvtx-schema3.20.2.sqlite": "t4-cupy-nvtx-schema3.20.2",
    "eager.1795181377914503189.pt.trace.json.gz": "eager.1795181377914503189",
    "step.pt.trace.json": "step",
    "trace.json.gz": "trace",
    "A.NCU-REP": "A",
    "page.raw.csv": "page",
    "no-ending": "no-ending",
    ".json": ".json",
}


@pytest.mark.parametrize("file", NAMES)
def test_a_name_loses_the_ending_of_its_format_and_nothing_else(file: str) -> None:
    assert formats.stem(file) == NAMES[file]


def test_titles_say_what_kind_of_profile_it_is_and_of_which_gpu() -> None:
    assert profiles.ncu("full.ncu-rep").title == "Nsight Compute report kernels-full, NVIDIA H200"
    assert profiles.kineto("eager").title.startswith("torch.profiler trace eager")
    bare = table.build([{"name": "k", "order": 0, "duration_ns": 1.0}], source={"reader": "nsys"})
    path = Path("a/b.1.sqlite")
    nsys.FORMAT.described(bare, path)
    assert source.of(bare, path) == source.Source("nsys", "b.1", "Nsight Systems capture b.1", "capture")
    assert source.of(bare, "run/eager/kernels.parquet").name == "eager"


def test_a_profile_is_no_step_and_its_ceilings_are_its_own() -> None:
    report = profiles.ncu("full.ncu-rep")
    assert report.kind == "ncu" and profiles.backend(report).per == "profile"
    assert report.ceilings_are == "stored in the profile, at the captured clock"
    said = " ".join(report.verdict)
    assert "this machine" not in said and " step" not in said and "unknown" not in said
    memory, fp32 = report.roofs[1], next(r for r in report.roofs if r.resource == "vector_fp32")
    assert (round(memory.value / 1e9), round((memory.maximum or 0) / 1e9), memory.datasheet) == (4811, 4814, 4.8e12)
    assert fp32.maximum == pytest.approx(66.908e12, rel=1e-4) and memory.working_set is None


def test_coverage_leaves_out_what_such_a_profile_cannot_hold() -> None:
    kernels = profiles.backend(profiles.ncu("full.ncu-rep")).coverage
    assert kernels is not None and kernels.text == (
        "Known of the kernel time: pass 100 %, FLOP 100 %, bytes 100 %, hardware counters 100 %."
    )
    trace = profiles.backend(profiles.kineto("eager")).coverage
    assert trace is not None and "counters" not in trace.text


def test_what_is_missing_is_said_once_with_its_option() -> None:
    basic = profiles.backend(profiles.ncu("basic.ncu-rep"))
    assert {m.what: m.option for m in basic.missing}["stall reasons"] == "--section WarpStateStats"
    assert not any("--section" in warning for warning in basic.warnings)


def test_a_profiler_lengthens_the_kernels_of_a_cpu_and_the_gaps_of_a_gpu() -> None:
    slowed = Accounting(
        profiled_step_ns=2.0, kernel_ns=1.0, gaps=[], other_ns=1.0, timed_step_ns=1.0, profiler_overhead=1.0
    )
    assert "efficiency and headroom, which come from it, are too pessimistic" in _slowed(slowed, "cpu")[0]
    assert "idle time of the GPU is overstated; the times of its kernels are its own" in _slowed(slowed, "cuda")[0]


def test_copies_and_fills_are_no_kernel_calls() -> None:
    """89 copies were counted among 3,778 kernel calls."""
    kinds = {"k": "gpu_kernel", "Memcpy DtoH (Device -> Pageable)": "memcpy", "Memset (Device)": "memset"}
    rows = [{"name": name, "kind": kind, "duration_ns": 1e3, "device": "cuda:0"} for name, kind in kinds.items()]
    made = table.build([{**row, "order": i} for i, row in enumerate([*rows, *rows[:2]])], source={"reader": "nsys"})
    [said, *_] = analyse_table(made, None, "x.sqlite").verdict
    assert said.startswith("2 kernel calls, 2 copies and 1 fill take 5.00 µs: ")
    alone = table.build([{**rows[1], "order": 0}], source={"reader": "nsys"})
    assert analyse_table(alone, None, "x.sqlite").verdict[0].startswith("1 copy takes 1.00 µs: Memcpy")


def test_without_durations_the_kernels_are_named_all_the_same() -> None:
    rows = [
        {"name": "k", "order": i, "kind": "gpu_kernel", "dram_bytes": 1e6, "dram_origin": "counter"} for i in (0, 1)
    ]
    made = table.build(
        [*rows, {"name": "l", "order": 2, "kind": "gpu_kernel", "dram_origin": "absent"}], source={"reader": "ncu-csv"}
    )
    report = analyse_table(made, None, "x.csv")
    assert report.verdict == [
        "The profile holds 3 kernel calls without durations: no rate, no efficiency and no headroom is known.",
        "It holds k (2 ×, 2.00 MB to and from DRAM) and l (1 ×).",
    ]
    assert report.backends[0].kernels == [] and report.backends[0].findings == []
