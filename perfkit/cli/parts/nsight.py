"""The options of ncu and nsys that commands share, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfkit.errors import UsageError
from perfkit.workloads.choices import not_one_of

if TYPE_CHECKING:
    from perfkit.run.counters import NsightPlan


def check(tool: str, counter_set: str, clock_control: str, cache_control: str, time_limit: float) -> None:
    """Raise `UsageError` for an unknown tool, set or way to control clocks or caches, or an invalid limit."""
    from perfkit.capture.nsight import TOOLS, ncu

    for option, value, known in (
        ("--tool", tool, TOOLS),
        ("--set", counter_set, ncu.SETS),
        ("--clock-control", clock_control, ncu.CLOCKS),
        ("--cache-control", cache_control, ncu.CACHES),
    ):
        if value not in known:
            raise not_one_of(option, value, known)
    if not time_limit > 0:
        raise UsageError(f"--time-limit must be more than 0 seconds; it is {time_limit:g}.")


def belongs_to_ncu(**given: Any) -> None:
    """Raise `UsageError` where an option of ncu was given and ncu does not run; `given` maps options to values."""
    odd = next((name for name, value in given.items() if value), None)
    if odd:
        raise UsageError(f"--{odd.replace('_', '-')} is an option of ncu.", "Leave it out, or choose ncu.")


def changed(given: Mapping[str, Any]) -> dict[str, bool]:
    """Return which options of ncu have another value than the usual one, by name."""
    from perfkit.capture.nsight import ncu

    usual = ncu.NcuOptions()
    return {name: value != getattr(usual, name) for name, value in given.items()}


def plan(
    settings: Any, counter_set: str, clock_control: str, cache_control: str, one_layer: bool, time_limit: float
) -> NsightPlan | None:
    """Return what a run asks of Nsight; None with another profiler. Raises `UsageError` for options that do not fit."""
    from perfkit.capture.nsight import TOOLS, ncu
    from perfkit.run.counters import NsightPlan

    given: dict[str, Any] = {"set": counter_set, "clock_control": clock_control, "cache_control": cache_control}
    if settings.profiler != ncu.NAME:
        belongs_to_ncu(**changed(given), one_layer=one_layer)
    if settings.profiler not in TOOLS:
        return None
    check(settings.profiler, counter_set, clock_control, cache_control, time_limit)
    options = ncu.NcuOptions(**given, profiler_api=True)
    return NsightPlan(tool=settings.profiler, ncu=options, one_layer=one_layer, limit_s=time_limit)
