"""No finding saves what other kernels take anyway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfkit.analysis.report.analyse import analyse_any
from perfkit.readers.kineto.trace import read_trace
from tests.support.readers.traces import Event, event, mark, write


def kernel(number: int, call: float, start: float, length: float, stream: int = 7, **more: Any) -> list[Event]:
    return [
        event("cuda_runtime", "cudaLaunchKernel", call, call + 3, correlation=number),
        event(
            "kernel", more.pop("name", "gemm"), start, start + length, pid=0, tid=stream, device=0, stream=stream,
            correlation=number, **more,
        ),
    ]  # fmt: skip


def test_no_finding_saves_what_other_kernels_take_anyway(tmp_path: Path) -> None:
    """Short kernels that overlap long ones on another stream: without them the step is as long."""
    events = [mark("ProfilerStep#3", 0, 10_100)]
    for k in range(10):
        events += kernel(1000 + k, 10 + 20 * k, 50 + 1000 * k, 1000, name="long")
    for k in range(900):
        events += kernel(1 + k, 300 + 10 * k, 310 + 10 * k, 4, stream=9, name="short")
    path = write(tmp_path / "t.json", events)
    found = analyse_any(read_trace(path), path).backends[0]
    busy = found.accounting.kernel_ns if found.accounting else 0.0
    assert busy == 10e6
    for finding in found.findings:
        assert finding.saving_ns <= 10.1e6 - (busy if "short" in finding.kernels else 0) + 1, finding.title
