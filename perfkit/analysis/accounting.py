"""Where the profiled step went: kernels + gaps = the step, beside the same step without a profiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from perfkit.analysis.results import Accounting, Gap

OTHER = "other"

_TEXTS = {
    "dispatch": "operators finding the kernel to run, views and wrappers around kernels",
    "allocation": "operators that only allocate",
    "autograd": "the autograd engine between and around backward operators",
    "Python": "no operator open: Python code, module calls, hooks",
    "sync": "waiting for a value or for the device",
    "data": "loading the batch",
    "profiler": "recording itself, estimated",
    "host code": "no CUDA call open on the thread that launches next: the program itself",
    "launch": "inside CUDA calls that launch kernels, copies and fills",
    "CUDA allocation": "inside CUDA calls that allocate or free memory",
    "driver": "inside other CUDA calls",
    "latency": "launched, and not yet running",
}


def accounting(facts: Mapping[str, Any], samples_ns: Sequence[float]) -> Accounting | None:
    """The mean profiled step from the facts of a table, per cause; None where the reader could not account for it.

    `samples_ns` are the steps without a profiler (none: unknown).
    """
    steps = facts.get("step_ns") or []
    busy = facts.get("busy_ns") or []
    if not steps or len(busy) != len(steps):
        return None
    step_ns, timed = fmean(steps), median(samples_ns) if samples_ns else None
    by_cause: dict[str, float] = {}
    for gap in facts.get("gaps", []):
        by_cause[gap["cause"]] = by_cause.get(gap["cause"], 0.0) + gap["ns"] / len(steps)
    gaps = [
        Gap(cause, ns, ns / step_ns if step_ns else 0.0, _text(cause, facts))
        for cause, ns in sorted(by_cause.items(), key=lambda item: -item[1])
        if cause != OTHER
    ]
    return Accounting(
        profiled_step_ns=step_ns,
        kernel_ns=fmean(busy),
        gaps=gaps,
        other_ns=by_cause.get(OTHER, 0.0),
        timed_step_ns=timed,
        profiler_overhead=step_ns / timed - 1 if timed else None,
    )


def _text(cause: str, facts: Mapping[str, Any]) -> str:
    estimate = facts.get("profiler_estimate")
    if cause == "profiler" and estimate:
        steps = max(len(facts.get("step_ns", [])), 1)
        return f"estimated: {estimate['events'] / steps:,.0f} events a step at {estimate['event_cost_ns']:,.0f} ns each"
    return _TEXTS.get(cause, "")
