"""The parts of the profiled step: kernels + gaps = the step, next to the same step without a profiler. And what a
trace's reader counts besides the rows: annotation ranges, copies, and waits for the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median, quantiles
from typing import Any

from perfkit import units
from perfkit.analysis.step_results import Accounting, Gap, RangeTime, Transfer, Wait

OTHER = "other"
LISTS = "lists"
EARLIER = "earlier work"
_UNEVEN = 0.5  # of the median step lies between the quartiles
_APART = 2.0  # times as long: two measurements without a profiler that differ as much are not of the same steps
_MORE = 1.1  # of a step: what its kernels take when they are profiled, if they are the same
_OTHER_WORK = 2.0  # times the CPU time of a timed step
_WORKING = 0.7  # of the cores that a timed step kept busy: a step that keeps fewer busy waits for them
_SHORTER = 0.05  # a profiler shortens nothing: if they are shorter by this, the profiled steps are other ones

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
    EARLIER: "what was launched before the capture: it belongs to no step",
    "another rank": "waiting in a collective that CPUs carry out",
}


def accounting(
    facts: Mapping[str, Any], samples_ns: Sequence[float], beside_ns: Sequence[float] = ()
) -> Accounting | None:
    """The mean profiled step from the facts of a table, per cause; None where the reader could not account for it.

    `samples_ns` are the timed steps, `beside_ns` those without a profiler right before the profiled ones; these, else
    those, give the profiler's overhead (none: unknown). Neither counts where they are `incomparable`.
    """
    steps = facts.get("step_ns") or []
    busy = facts.get("busy_ns") or []
    if not steps or len(busy) != len(steps):
        return None
    if incomparable(facts, samples_ns, beside_ns):
        samples_ns = beside_ns = ()
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
        profiler_overhead=step_ns / plain - 1 if plain else None,
        plain_step_ns=plain,
        step_text=_step_text(facts),
    )


def _step_text(facts: Mapping[str, Any]) -> str:
    """Return a description of the GPU's step, where it is not the host's."""
    host = facts.get("host_step_ns")
    if not host:
        return ""
    return f"from its first kernel to the next step's; on the host {units.text(fmean(host), 'ns')}"


def incomparable(facts: Mapping[str, Any], samples_ns: Sequence[float], beside_ns: Sequence[float] = ()) -> str:
    """Return why the timed steps do not compare with the profiled ones; "" if they do, or without timed steps."""
    steps, plain = facts.get("step_ns") or [], beside_ns or samples_ns
    if not steps or not samples_ns:
        return ""
    step_ns, plain_ns, timed_ns = fmean(steps), median(plain), median(samples_ns)
    if max(plain_ns, timed_ns) > _APART * min(plain_ns, timed_ns):
        took = f"{units.text(timed_ns, 'ns')} when they were timed and {units.text(plain_ns, 'ns')} before the profile"
        return f"steps without a profiler took {took}: the machine was busy, or the steps did other work"
    if _uneven(steps, plain) > abs(step_ns - plain_ns):
        return f"the steps are uneven: profiled ones took {_range(steps)}, timed ones {_range(plain)}"
    if (kernels := _kernels_alone(facts)) > _MORE * plain_ns:
        longer = f"its kernels alone take {units.text(kernels, 'ns')}, and a whole step without it {_range(plain)}"
        return f"{_did_more(facts, step_ns, plain_ns)}: {longer}"
    if step_ns < (1 - _SHORTER) * plain_ns:
        less = f"{1 - step_ns / plain_ns:.0%} less than the timed one"
        return f"the profiled step took {less}, so that was not yet warm, or the machine was busy"
    if any(check["name"] == "timed" and check.get("holds") is False for check in facts.get("trace_checks") or []):
        return "the GPU is busy for longer in a profiled step than a timed step takes"
    return "only one step was timed" if len(samples_ns) == 1 else ""


def _did_more(facts: Mapping[str, Any], step_ns: float, plain_ns: float) -> str:
    """Why a profiled step is longer than a profiler makes it, as far as the program's CPU time shows: work takes it,
    waiting for a core that others have does not."""
    cpu_ns, profiled_cpu_ns = facts.get("cpu_ns") or (0.0, 0.0)
    if facts.get("devices") or not cpu_ns:
        return "the profiled step did more, or the machine was busy"
    took = f"{units.text(profiled_cpu_ns, 'ns')} of CPU time in it, {units.text(cpu_ns, 'ns')} in a timed one"
    did_other_work = profiled_cpu_ns > _OTHER_WORK * cpu_ns  # threads that wait for each other spin, but not so long
    waited = profiled_cpu_ns / step_ns < _WORKING * cpu_ns / plain_ns
    found = ["the profiled step did other work"] * did_other_work + ["the machine was busy"] * waited
    return f"{' and '.join(found) or 'the profiled step did more, or the machine was busy'} ({took})"


def _kernels_alone(facts: Mapping[str, Any]) -> float:
    """Kernel time of a profiled step without what recording may add to it, ns. More than a step is not
    overhead of a profiler."""
    recorded = facts.get("profiler_estimate") or {"events": 0, "event_cost_ns": 0.0}
    steps = facts.get("step_ns") or [0.0]
    return fmean(facts.get("busy_ns") or [0.0]) - recorded["events"] * recorded["event_cost_ns"] / len(steps)


def _uneven(*series: Sequence[float]) -> float:
    """Return the largest interquartile range of uneven steps of `series`; 0 if all are even."""
    spreads = [_spread(values) for values in series]
    return max((s for s, values in zip(spreads, series, strict=True) if s > _UNEVEN * median(values)), default=0.0)


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, _, high = quantiles(values, n=4, method="inclusive")
    return high - low


def _range(values: Sequence[float]) -> str:
    least, most = (units.text(end(values), "ns") for end in (min, max))
    return least if least == most else f"{least} to {most}"


def _split_lists(by_cause: dict[str, float], lists_ns: float, facts: Mapping[str, Any]) -> None:
    """Take tensors made of Python lists out of Python's time, as a cause of their own, if the step is the host's.

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


_MOST = 200  # ranges in a report; the table's facts hold more


def ranges(facts: Mapping[str, Any]) -> list[RangeTime]:
    """The ranges that launched kernels, most kernel time first. Totals of the capture, not of a step.

    Readers count the kernels of ranges, and no copies and fills, inside of steps and outside: shares are of the same.
    """
    total = sum(d["kernel_ns"] for d in facts.get("devices", []))
    return [
        RangeTime(r["name"], r["count"], r["host_ns"], r["kernels"], r["kernel_ns"], r["kernel_ns"] / total)
        for r in facts.get("ranges", [])[:_MOST]
        if r["kernels"] and total
    ]


def transfers(facts: Mapping[str, Any]) -> list[Transfer]:
    """Copies by direction and kind of memory, the longest first; the rate is the ratio of the sums."""
    return [
        Transfer(
            c["name"], c["count"], c["ns"], c["bytes"], c["bytes"] / c["ns"] * 1e9 if c["bytes"] and c["ns"] else None
        )
        for c in facts.get("copies", [])
    ]


def waits(facts: Mapping[str, Any]) -> list[Wait]:
    """The host's waits for the GPU by call, the longest first."""
    return [Wait(w["kind"], w["count"], w["ns"]) for w in facts.get("synchronisation", [])]
