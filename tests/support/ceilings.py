"""Quick versions of what perfkit measures on the machine and the profiler, for tests of what follows from it.

Ceilings are measured in seconds, once a checkout, and kept though the machine was busy; what an event of the profiler
costs, in some ms. tests/hardware and tests/capture test the measurements themselves.
"""

from __future__ import annotations

import msgspec

from perfkit.capture.agent.tracing import profiler
from perfkit.hardware import store
from perfkit.hardware.ceilings import Ceilings
from perfkit.hardware.collectives import measure as collectives
from perfkit.hardware.collectives.sweep import SweepRequest
from perfkit.hardware.measure import measure
from perfkit.hardware.observation import KIB, MIB, Effort, Progress, cpu_plan

whole_event_cost_ns = profiler.event_cost_ns

QUICK = {"pattern_s": 0.002, "vector_s": 0.02, "matmul_s": 0.05, "torch_s": 1.0, "rounds": 1, "more_rounds": 0}
SIZES = (MIB // 8, 2 * MIB, 8 * MIB, 64 * MIB)


def measured(device: str, threads: int, progress: Progress | None = None, plan: Effort | None = None) -> Ceilings:
    """As `perfkit.hardware.measure.measure`, with a quick plan for a CPU unless one is given."""
    if device == "cpu" and plan is None:
        plan = msgspec.structs.replace(cpu_plan(SIZES[1], SIZES[-1]), sizes=SIZES, main_memory=None, **QUICK)
    found = measure(device, threads, progress, plan)
    found.load, found.warnings = None, []  # other tests ran at the same time, and will the next time
    return found


def requested(device: str) -> SweepRequest:
    """As `perfkit.hardware.collectives.measure.requested`, of three sizes."""
    return SweepRequest(device=device, sizes=(KIB, 64 * KIB, MIB), seconds=0.005, rounds=1)


def event_cost_ns() -> float:
    """As `perfkit.capture.agent.tracing.profiler.event_cost_ns`, from a twentieth of the events, once."""
    return whole_event_cost_ns(100, 1)


def measure_quickly() -> None:
    """From now on this process measures so."""
    store.measure = measured  # type: ignore[assignment]
    collectives.requested = requested
    profiler.event_cost_ns = event_cost_ns  # type: ignore[assignment]
