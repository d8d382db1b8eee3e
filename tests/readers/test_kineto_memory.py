"""Allocations in traces: torch's own, made up, damaged, and many."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from perfkit.errors import InputError
from perfkit.readers.kineto.memory import POINTS
from perfkit.readers.kineto.recorded import read_recorded
from tests.support.tensorboard.logdirs import FIXTURES, write_trace


@pytest.mark.slow
def test_a_trace_of_this_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = torch.ones(1 << 20)
        del kept
    path = tmp_path / "x.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    [cpu] = read_recorded(path).memory
    assert cpu.device == "cpu" and cpu.events >= 2 and cpu.reserved == [] and cpu.peak_reserved is None
    assert cpu.peak_allocated >= 4 << 20
    assert cpu.peak_allocated - cpu.last_allocated >= 4 << 20
    assert cpu.time_ns[0] == 0 and cpu.time_ns == sorted(cpu.time_ns)


def test_a_trace_without_allocations_has_none() -> None:
    assert read_recorded(FIXTURES / "kineto" / "eager.json.gz").memory == []


@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_peaks_survive_thinning(tmp_path: Path, ending: str) -> None:
    totals: list[float | None] = [float(i % 7) for i in range(50_000)]
    totals[31_337] = 1e9
    [cpu] = read_recorded(write_trace(tmp_path / f"x{ending}", totals)).memory
    assert cpu.events == 50_000 and len(cpu.allocated) <= POINTS + 2
    assert cpu.peak_allocated == max(cpu.allocated) == 1e9
    assert cpu.time_ns[cpu.allocated.index(1e9)] == pytest.approx(31_337 * 10e3)
    assert cpu.last_allocated == cpu.allocated[-1] == totals[-1]


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    [cpu] = read_recorded(write_trace(tmp_path / "x.json", [1, None, 3])).memory
    assert cpu.allocated == [1, 3]
    [cpu] = read_recorded(write_trace(tmp_path / "x.json", [1, math.nan, 3])).memory  # PyTorch writes a bare NaN
    assert cpu.allocated == [1, 3]


@pytest.mark.parametrize("text", ["{", "[1", '{"traceEvents": 3}', "\x80"])
def test_damaged_files_are_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError):
        read_recorded(path)
