"""The verdict: what the numbers say, the most important first, and never more than the intervals allow."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit import units
from perfkit.analysis.report import speed
from perfkit.analysis.report.accounting import EARLIER
from perfkit.analysis.results import BackendReport, Group, Interval
from perfkit.analysis.source import NCU, RUN
from perfkit.analysis.words import apart, bound, call, listed, percent
from perfkit.run_folder import BackendRun, Manifest, Settings
from perfkit.settings import fields
from perfkit.units import cropped

MOSTLY = 0.5  # of the kernel time: an efficiency of less is not that of the step

if TYPE_CHECKING:
    import pandas as pd


def of_run(reports: Sequence[BackendReport], manifest: Manifest) -> list[str]:
    """Sentences about a run: wrong backends, their steps, where its time goes, its largest headroom, failures."""
    by_name = {r.name: r for r in reports}
    runs = [b for b in manifest.backends if speed.trusted(b)]
    order = sorted(runs, key=lambda b: speed.step_time(b.samples_ns).value)  # type: ignore[union-attr]
    sentences = [_wrong(r) for r in reports if r.status == "wrong"]
    sentences += [f"{unusable(r)} Its timings stand." for r in reports if r.unusable]
    sentences += _steps(order, by_name, manifest.settings)
    sentences += _tokens(by_name[order[0].name]) if order else []
    if order:
        sentences += of_profile(by_name[order[0].name])
    else:
        profiled = next((r for r in reports if r.passes), None)
        sentences += of_profile(profiled) if profiled else []
    sentences += [f"{r.name} failed: {r.reason}" for r in reports if r.status == "failed"]
    sentences += [f"{r.name} is unavailable here: {r.reason}" for r in reports if r.status == "unavailable"]
    return sentences


def unusable(report: BackendReport) -> str:
    """Why no number was made from a backend's profile."""
    return f"{report.name}'s profile is unusable: {report.unusable}"


def of_profile(report: BackendReport) -> list[str]:
    """Sentences about one kernel table: where the time goes, what bounds it, the largest headroom."""
    found = [_where(report), _headroom(report)]
    return [sentence for sentence in found if sentence]


def without_times(frame: pd.DataFrame) -> list[str]:
    """Return the headline of a profile without durations: kernels, their counts, and the memory that they moved."""
    if not len(frame):
        return ["The profile holds no kernels."]
    names = frame["short_name"].fillna(frame["name"])
    calls = names.value_counts()
    moved = frame["dram_bytes"].groupby(names).sum(min_count=1)
    said = [
        f"{cropped(str(name))} ({count:,} ×{f', {text} to and from DRAM' if (text := _bytes(moved[name])) else ''})"
        for name, count in calls.head(_MOST_NAMED).items()
    ]
    more = [f"{len(calls) - _MOST_NAMED} more kernels"] if len(calls) > _MOST_NAMED else []
    return [
        f"The profile holds {_calls(len(frame))} without durations: no rate, no efficiency and no headroom is known.",
        f"It holds {listed([*said, *more])}.",
    ]


_MOST_NAMED = 5


def _bytes(amount: float) -> str:
    return units.text(amount, "B") if amount == amount else ""


def _calls(count: float) -> str:
    return "1 kernel call" if round(count) == 1 else f"{count:,.0f} kernel calls"


def _wrong(report: BackendReport) -> str:
    reason = report.reason or "its results differ from the reference by more than allowed"
    return f"{report.name} is WRONG: {reason.rstrip('.')}. Its speed means nothing and is not compared."


def _steps(order: Sequence[BackendRun], by_name: dict[str, BackendReport], settings: Settings) -> list[str]:
    """Return the times of a step, the shortest first. Single processes do not show who is faster: launches do."""
    steps = [(run.name, step) for run in order if (step := by_name[run.name].step)]
    if not steps:
        return []
    if len(steps) == 1:
        name, step = steps[0]
        return [f"A step takes {_time(step)} in {name}.{_not_compared(by_name[name])}"]
    took = listed([f"{units.text(step.value, 'ns')} in {name}" for name, step in steps])
    if settings.in_group:
        who = f"{settings.ranks} ranks" if settings.ranks > 1 else "a group of one rank"
        return [f"In this run a step of {who} took {took}."]
    if any(run.own for run in order):  # processes of one program: no sides of a comparison
        return [f"In this run a step took {took}."]
    if settings.generate:  # `perfkit compare` measures no such steps
        return [f"In this run a step took {took}."]
    return [f"In this run a step took {took}. Whether the difference holds: `{_command(order, settings)}`."]


def _not_compared(report: BackendReport) -> str:
    """A sentence if the timed step does not compare with the profiled ones; a warning says why."""
    account = report.accounting
    if account is None or account.timed_step_ns is not None or not report.samples_ns:
        return ""
    return f" Savings are of the profiled step, {units.text(account.profiled_step_ns, 'ns')}: the two do not compare."


def _tokens(report: BackendReport) -> list[str]:
    """When the tokens of the fastest backend come, and how far that is from what bounds them."""
    if not report.phases:
        return []
    first, *later = report.phases
    said = f"In {report.name} the first token comes after {_time(first.time)}"
    if not later:
        return [f"{said}."]
    each = later[0]
    said += f", a further one every {_time(each.time)} (99th percentile {units.text(each.slow_ns, 'ns')})"
    if each.efficiency is None:
        return [f"{said}."]
    moved = f"weights and cache ({units.text(each.weight_bytes + each.cache_bytes, 'B')})"
    needs = f"{moved} once" if each.bound == "memory" else "the FLOP of one"
    return [f"{said}: {percent(each.efficiency)} of the roof, {needs} at {each.ceiling}."]


# A comparison does not take this: it measures launches in turns, each in one process.
_NOT_COMPARED = {
    "batch_size", "sequence_length", "generate", "ranks", "parallel", "hosts", "steps", "warmup", "profiler",
    "profile_memory", "launch_blocking",
}  # fmt: skip


def _command(order: Sequence[BackendRun], settings: Settings) -> str:
    """The command that compares the backends by launches, eager first."""
    names = sorted((run.name for run in order), key=lambda name: name != speed.REFERENCE)
    words = ["perfkit", "compare", settings.workload, "--backend", ",".join(names), "-B", str(settings.batch_size)]
    words += [] if settings.sequence_length is None else ["-T", str(settings.sequence_length)]
    for name, field in fields().items():
        value, usual = getattr(settings, name), Path(settings.workload).stem if name == "preset" else field.default
        if (name not in _NOT_COMPARED and value and value != usual) or (name == "training" and not value):
            words += _typed(field.option, value)
    return shlex.join(words)


def _typed(option: str, value: Any) -> list[str]:
    """The words of an option with this value."""
    if isinstance(value, bool):
        return [option]
    if isinstance(value, dict):
        return [word for name, one in value.items() for word in (option, f"{name}={one}")]
    return [option, ",".join(value) if isinstance(value, tuple) else str(value)]


def _where(report: BackendReport) -> str:
    """Return a sentence on the kernel time: the largest passes and families, or the largest single kernels."""
    if not report.families:
        return ""
    if report.per == "profile" or not report.passes:
        said = f"{_kernels(report)}: {_by_name(report.kernels)}"
    else:
        passes = sorted(report.passes, key=lambda g: -g.time_ns)[:2]
        families = report.families[:2]
        said = f"In {report.name} the kernel time goes to {_shares(passes)}, by kind of kernel to {_shares(families)}"
    return f"{said}{_idle(report)}."


def _by_name(kernels: Sequence[Group]) -> str:
    """The three kernels that take most time, each of all its shapes, with their shares."""
    shares: dict[str, float] = {}
    for group in kernels:
        shares[group.key] = shares.get(group.key, 0.0) + group.share
    names = sorted(shares, key=lambda name: -shares[name])[:3]
    return listed([f"{said} ({percent(shares[name])})" for name, said in zip(names, apart(names), strict=True)])


def _kernels(report: BackendReport) -> str:
    count = sum(g.count for g in report.kernels)
    copies, fills = (sum(g.count for g in report.kernels if g.key.startswith(k)) for k in ("Memcpy", "Memset"))
    kernels = count - copies - fills
    said = [_calls(kernels)] if kernels else []
    said += [f"{copies:,.0f} {'copy' if round(copies) == 1 else 'copies'}"] if copies else []
    said += [f"{fills:,.0f} {'fill' if round(fills) == 1 else 'fills'}"] if fills else []
    return f"{listed(said)} {'takes' if count == 1 else 'take'} {units.text(report.kernel_ns, 'ns')}{_a(report)}"


def _a(report: BackendReport) -> str:
    return " a step" if report.per == "step" else ""


def _of(report: BackendReport) -> str:
    """Return the base of savings: a step, or the profiled one if the profiler lengthens the kernels, as on a CPU."""
    account = report.accounting
    if report.device != "cpu" or report.per != "step" or account is None or not account.is_slowed:
        return f"{_a(report)} at most"
    return f" at most of the {units.text(account.profiled_step_ns, 'ns')} that the profiled step takes"


def _idle(report: BackendReport) -> str:
    """The part of the step without a kernel; on a GPU also of the timed step, for there the profiler adds gaps only."""
    account = report.accounting
    if account is None or not account.profiled_step_ns:
        return ""
    idle = [g for g in account.gaps if g.cause != EARLIER]
    gaps = sum(g.share for g in idle) + account.other_ns / account.profiled_step_ns
    causes = [(g.share, g.cause) for g in idle]
    causes += [(account.other_ns / account.profiled_step_ns, "without a cause that is known")]
    share, named = max(causes)
    much = "most of it" if 2 * share >= gaps else "the largest part of it"
    cause = f", {much} {named} ({percent(share)})" if gaps >= 0.1 else ""
    timed = account.timed_step_ns if report.device != "cpu" and gaps >= 0.1 else None
    without = f" ({percent(max(0.0, 1 - account.kernel_ns / timed))} without the profiler)" if timed else ""
    profiled = "profiled step" if report.per == "step" else report.per
    return f"; no kernel runs during {percent(gaps)} of the {profiled}{without}{cause}"


def _headroom(report: BackendReport) -> str:
    """Efficiency, and the kind of kernel with the most to gain."""
    if report.efficiency is None or report.headroom_ns is None:
        return ""
    own = report.kind == NCU
    whose = "this machine's ceilings" if report.kind == RUN else "the ceilings"
    whose, allow = ("the datasheet's roof", "allows") if report.datasheet else (whose, "allow")
    them = "it" if report.datasheet else "them"
    reaching = f"reaching {them} with the work and bytes that they have now" if own else f"reaching {them}"
    which = "Those that can be judged run" if report.withheld else "Its kernels run"
    judged = sum(group.judged_ns for group in report.kernels) / report.kernel_ns if report.kernel_ns else 1.0
    if judged < MOSTLY:
        which = f"Those that can be judged, {percent(judged)} of the kernel time, run"
    said = f"{which} at {percent(report.efficiency)} of what {whose} {allow}"
    if not report.headroom:
        return f"{said}."
    top = report.headroom[0]
    return (
        f"{said}; {reaching} would save {units.text(report.headroom_ns, 'ns')}{_of(report)}, of which "
        f"{units.text(top.headroom_ns, 'ns')} in {call(top)}, now at {percent(top.efficiency)} of {bound(top.bound)}."
    )


def _time(step: Interval) -> str:
    scale = units.scale_for([step.value, step.low, step.high], "ns")
    if step.samples == 1:
        return f"{scale.text(step.value)} (timed once)"
    kind = f"range of {step.samples}" if step.is_range else "95 % interval"
    return f"{scale.text(step.value)} ({kind} {scale.span(step.low, step.high)})"


def _shares(groups: Iterable[Group]) -> str:
    return listed([f"{g.key} ({percent(g.share)})" for g in groups])
