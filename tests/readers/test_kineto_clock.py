"""The clocks of host and GPU: a GPU that works off a queue is not late, and an excerpt lacks what ran before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit.readers.kineto.trace import read_trace
from perfkit.readers.unusable import UnusableProfile
from perfkit.table import KernelTable
from tests.support.readers.traces import Event, event, mark, write


def queue(pause: float, earlier: int, steps: int = 2, lead: float = 0.0, jitter: float = 0.0) -> list[Event]:
    """Steps of 100 kernels of 95 µs, launched every 95 µs; the GPU pauses for `pause` µs after each. It worked for
    `lead` µs, or at `earlier` kernels, before the first of them."""
    free, number, found = 100.0 + lead, 0, []

    def kernel(name: str) -> None:
        nonlocal free, number
        number += 1
        more = {"device": 0, "stream": 7, "correlation": number}
        found.append(event("kernel", name, free, free + 95, pid=0, tid=7, **more))
        free += 95 + pause + jitter * (number % 7)

    for _ in range(earlier):
        kernel("earlier")
    for s in range(steps):
        begin = 1000 + 10_000 * s
        found.append(mark(f"ProfilerStep#{s}", begin, begin + 9990))
        for k in range(100):
            at = begin + 50 + 95 * k
            found.append(event("cuda_runtime", "cudaLaunchKernel", at, at + 3, correlation=number + 1))
            free = max(free, at + 8)
            kernel("mine")
    return found


def clock(found: KernelTable) -> dict[str, Any]:
    (check,) = [c for c in found.facts["trace_checks"] if c["name"] == "clock"]
    return check


@pytest.mark.parametrize(("pause", "jitter"), [(1, 0), (5, 0), (10, 2), (18, 0), (40, 30), (300, 100)])
@pytest.mark.parametrize("earlier", [0, 30, 300])
def test_pauses_of_a_queue_are_no_idle_gpu(tmp_path: Path, pause: float, jitter: float, earlier: int) -> None:
    trace = write(tmp_path / "t.json", queue(pause, earlier, jitter=jitter))
    assert clock(read_trace(trace))["holds"]


@pytest.mark.parametrize("lead", [2_000, 30_000, 1e6])
def test_an_excerpt_without_the_work_before_it_is_used_and_says_so(tmp_path: Path, lead: float) -> None:
    found = read_trace(write(tmp_path / "t.json", queue(5, 0, lead=lead)))
    assert clock(found)["holds"] and "the GPU's work before it is not in the trace" in clock(found)["sentence"]
    assert found.frame["duration_ns"].sum() == 200 * 95e3 and found.frame["step"].value_counts().tolist() == [100, 100]


def programs(shift: float, wait: bool = False) -> list[Event]:
    """Kernels of 20 µs, every 100 to 400 µs on an idle GPU whose clock is `shift` µs ahead."""
    found, at = [mark("ProfilerStep#0", 0, 30_000)], 10.0
    for k in range(100):
        found.append(event("cuda_runtime", "cudaLaunchKernel", at, at + 4, correlation=k + 1))
        begin = at + 10 + k % 3 + shift
        more = {"device": 0, "stream": 7, "correlation": k + 1}
        found.append(event("kernel", "k", begin, begin + 20, pid=0, tid=7, **more))
        at += 100 * (1 + k % 4)
    if wait:
        found.append(event("cuda_runtime", "cudaDeviceSynchronize", at, at + 50, correlation=1000))
    return found


@pytest.mark.parametrize("shift", [12_000, 50_000, 3e6])
@pytest.mark.parametrize("wait", [False, True])
def test_a_clock_that_is_ahead_is_found(tmp_path: Path, shift: float, wait: bool) -> None:
    with pytest.raises(UnusableProfile, match=r"the GPU's clock is .* ahead of the host's"):
        read_trace(write(tmp_path / "t.json", programs(shift, wait)))


def test_clocks_that_agree(tmp_path: Path) -> None:
    found = clock(read_trace(write(tmp_path / "t.json", programs(0, wait=True))))
    assert found["holds"] and not found["sentence"]


def test_a_queue_of_constant_length_is_shown_by_the_wait_behind_it(tmp_path: Path) -> None:
    """The host is always the same number of launches ahead, as a full queue makes it: that is not a difference of
    clocks where it then waits until all has ended."""
    events = [mark("ProfilerStep#0", 0, 120_000)]
    for k in range(100):
        at = 1000.0 * k
        events.append(event("cuda_runtime", "cudaLaunchKernel", at, at + 4, correlation=k + 1))
        more = {"device": 0, "stream": 7, "correlation": k + 1}
        events.append(event("kernel", "k", at + 20_000, at + 20_950, pid=0, tid=7, **more))
    events.append(event("cuda_runtime", "cudaDeviceSynchronize", 99_100, 119_970, correlation=1000))
    assert clock(read_trace(write(tmp_path / "t.json", events)))["holds"]
