"""Where the profiled step went: kernels + gaps = the step, beside the same step without a profiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from perfkit.analysis.results import Accounting, Gap

OTHER = "other"
LISTS = "lists"

_TEXTS = {
    "dispatch": "operators finding the kernel to run, views and wrappers around kernels",
    "allocation": "operators that only allocate",
    "autograd": "the autograd engine between and around backward operators",
    "Python": "no operator open: Python code, module calls, hooks",
    "lists": "tensors made of Python lists, value by value",
    "sync": "waiting for a value or for the device",
    "data": "loading the batch",
    "profiler": "recording itself",
    "host code": "no CUDA call open on the thread that launches next: the program itself",
    "launch": "inside CUDA calls that launch kernels, copies and fills",
    "CUDA allocation": "inside CUDA calls that allocate or free memory",
    "driver": "inside other CUDA calls",
    "latency": "launched, and not yet running",
    "queued": "launched before: the GPU goes from one piece of work to the next",
    "stream wait": "launched before, and held back by another stream's work",
    "another rank": "waiting in a collective that CPUs carry out",
}


def accounting(
    facts: Mapping[str, Any], samples_ns: Sequence[float], beside_ns: Sequence[float] = ()
) -> Accounting | None:
    """The mean profiled step from the facts of a table, per cause; None where the reader could not account for it.

    `samples_ns` are the timed steps, `beside_ns` those without a profiler right before the profiled ones; these, else
    those, tell the profiler's overhead (none: unknown).
    """
    steps = facts.get("step_ns") or []
    busy = facts.get("busy_ns") or []
    if not steps or len(busy) != len(steps):
        return None
    step_ns, timed = fmean(steps), median(samples_ns) if samples_ns else None
    plain = median(beside_ns) if beside_ns else timed
    by_cause: dict[str, float] = {}
    for gap in facts.get("gaps", []):
        by_cause[gap["cause"]] = by_cause.get(gap["cause"], 0.0) + gap["ns"] / len(steps)
    _split_lists(by_cause, sum(entry["ns"] for entry in facts.get("list_tensors") or []) / len(steps), facts)
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
        profiler_overhead=median(steps) / plain - 1 if plain else None,
        plain_step_ns=plain,
    )


def _split_lists(by_cause: dict[str, float], lists_ns: float, facts: Mapping[str, Any]) -> None:
    """Where the host's time is the step's, take tensors made of Python lists out of Python's: a cause of their own.

    Beside a GPU a gap is time in which the GPU idles, and how much of the conversions that is nobody knows.
    """
    if facts.get("devices"):
        return
    for cause in ("Python", "autograd", OTHER):
        part = min(lists_ns, by_cause.get(cause, 0.0))
        if part > 0:
            by_cause[cause] -= part
            by_cause[LISTS] = by_cause.get(LISTS, 0.0) + part
            lists_ns -= part


def _text(cause: str, facts: Mapping[str, Any]) -> str:
    estimate = facts.get("profiler_estimate")
    if cause == "profiler" and estimate:
        steps = max(len(facts.get("step_ns", [])), 1)
        return f"estimated: {estimate['events'] / steps:,.0f} events a step at {estimate['event_cost_ns']:,.0f} ns each"
    return _TEXTS.get(cause, "")
