"""The options of ncu and nsys that commands share, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.capture.counters import Plan


def check(tool: str, counter_set: str, clock_control: str, time_limit: float) -> None:
    """Raise `UsageError` for an unknown tool, set or way to control the clocks, or a limit that is none."""
    from perfkit.capture.counters import TOOLS
    from perfkit.capture.nsight import ncu
    from perfkit.workloads.choices import unknown

    for what, value, known in (("tool", tool, TOOLS), ("set", counter_set, ncu.SETS)):
        if value not in known:
            raise unknown(what, value, known)
    if clock_control not in ncu.CLOCKS:
        raise unknown("clock control", clock_control, ncu.CLOCKS)
    if not time_limit > 0:
        raise UsageError(f"--time-limit must be more than 0 seconds; it is {time_limit:g}.")


def belongs_to_ncu(**given: Any) -> None:
    """Raise `UsageError` where an option of ncu was given and ncu does not run; `given` maps options to values."""
    odd = next((name for name, value in given.items() if value), None)
    if odd:
        raise UsageError(f"--{odd.replace('_', '-')} is an option of ncu.", "Leave it out, or choose ncu.")


def plan(settings: Any, counter_set: str, clock_control: str, one_layer: bool, time_limit: float) -> Plan | None:
    """What a run asks of Nsight; None with another profiler. Raises `UsageError` for options that do not fit."""
    from perfkit.capture.counters import TOOLS, Plan
    from perfkit.capture.nsight import ncu

    if settings.profiler != "ncu":
        odd = {"set": counter_set != ncu.METRICS, "clock-control": clock_control != "none", "one-layer": one_layer}
        belongs_to_ncu(**odd)
    if settings.profiler not in TOOLS:
        return None
    check(settings.profiler, counter_set, clock_control, time_limit)
    options = ncu.Options(set=counter_set, clock_control=clock_control, profiler_api=True)
    return Plan(tool=settings.profiler, ncu=options, one_layer=one_layer, limit_s=time_limit)
