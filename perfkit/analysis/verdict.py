"""The verdict: what the numbers say, the most important first, and never more than the intervals allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfkit import units
from perfkit.analysis import speed
from perfkit.analysis.results import BackendReport, Group, Interval
from perfkit.run_folder import BackendRun, Manifest

_PLAIN = {"memory": "memory bandwidth", "l2": "L2 bandwidth"}


def of_run(reports: Sequence[BackendReport], manifest: Manifest) -> list[str]:
    """Sentences about a run: wrong backends, the fastest, where its time goes, its largest headroom, MFU, failures."""
    by_name = {r.name: r for r in reports}
    runs = [b for b in manifest.backends if speed.trusted(b)]
    order = sorted(runs, key=lambda b: speed.step_time(b.samples_ns).value)  # type: ignore[union-attr]
    sentences = [_wrong(r) for r in reports if r.status == "wrong"]
    sentences += _fastest(order, by_name)
    if order:
        sentences += of_profile(by_name[order[0].name])
    else:
        profiled = next((r for r in reports if r.passes), None)
        sentences += of_profile(profiled) if profiled else []
    sentences += [f"{r.name} failed: {r.reason}" for r in reports if r.status == "failed"]
    sentences += [f"{r.name} is unavailable here: {r.reason}" for r in reports if r.status == "unavailable"]
    return sentences


def of_profile(report: BackendReport) -> list[str]:
    """Sentences about one kernel table: where the time goes, what bounds it, the largest headroom, MFU."""
    found = [_where(report), _headroom(report), _mfu(report)]
    return [sentence for sentence in found if sentence]


def _wrong(report: BackendReport) -> str:
    reason = report.reason or "its results differ from the reference by more than allowed"
    return f"{report.name} is WRONG: {reason.rstrip('.')}. Its speed means nothing and is not compared."


def _fastest(order: Sequence[BackendRun], by_name: dict[str, BackendReport]) -> list[str]:
    """Who is fastest, or that the measurement cannot tell."""
    if not order:
        return []
    best = by_name[order[0].name]
    assert best.step is not None
    if len(order) == 1:
        return [f"A step takes {_time(best.step)} in {best.name}."]
    level = [b for b in order[1:] if not _differs(speed.compare(b, order[0]))]
    if level:
        names = _listed([order[0].name, *(b.name for b in level)])
        return [f"No difference in speed is shown between {names}: {_times([order[0], *level], by_name)}."]
    sentence = f"{best.name} is the fastest: a step takes {_time(best.step)}"
    return [f"{sentence}, {_against(order, best)}."]


def _against(order: Sequence[BackendRun], best: BackendReport) -> str:
    """The fastest beside eager where there is one, else beside the next."""
    if best.speedup is not None:
        return f"{_ratio(best.speedup)} as fast as eager"
    ratio = speed.compare(order[1], order[0])
    assert ratio is not None
    return f"{_ratio(ratio)} as fast as {order[1].name}, the next"


def _differs(ratio: Interval | None) -> bool:
    """Whether the interval of a ratio of times excludes 1."""
    return ratio is not None and not ratio.low <= 1.0 <= ratio.high


def _where(report: BackendReport) -> str:
    """The share of kernels in the step, and the largest passes and families."""
    if not report.passes or not report.families:
        return ""
    passes = sorted(report.passes, key=lambda g: -g.time_ns)[:2]
    families = report.families[:2]
    said = f"In {report.name} the kernel time goes to {_shares(passes)}; by kind of kernel to {_shares(families)}."
    account = report.accounting
    if account is None or not account.profiled_step_ns:
        return said
    gaps = 1 - account.kernel_ns / account.profiled_step_ns
    largest = max(account.gaps, key=lambda g: g.time_ns, default=None)
    cause = f", most of it {largest.cause} ({_percent(largest.share)})" if largest and gaps >= 0.1 else ""
    return f"{said} No kernel runs during {_percent(gaps)} of the profiled step{cause}."


def _headroom(report: BackendReport) -> str:
    """Efficiency, and the kind of kernel with the most to gain."""
    if report.efficiency is None or report.headroom_ns is None:
        return ""
    said = f"Its kernels run at {_percent(report.efficiency)} of what this machine's ceilings allow"
    if not report.headroom:
        return f"{said}."
    top = report.headroom[0]
    return (
        f"{said}; reaching them would save {units.text(report.headroom_ns, 'ns')} a step at most. The largest part, "
        f"{units.text(top.headroom_ns, 'ns')}, is in {_call(top)}, bound by {_PLAIN.get(top.bound, top.bound)} "
        f"({top.ceiling}), now at {_percent(top.efficiency)}."
    )


def _call(group: Group) -> str:
    shapes = group.shapes if len(group.shapes) <= 60 else f"{group.shapes[:59]}…"
    return f"{group.key} of {shapes}" if shapes else group.key


def _mfu(report: BackendReport) -> str:
    if report.mfu is None:
        return ""
    return f"MFU is {_percent(report.mfu)}: the model's matrix FLOP over the step time, of {report.mfu_ceiling}."


def _times(runs: Iterable[BackendRun], by_name: dict[str, BackendReport]) -> str:
    steps = [(r.name, by_name[r.name].step) for r in runs]
    return ", ".join(f"{name} {_time(step)}" for name, step in steps if step)


def _time(step: Interval) -> str:
    scale = units.scale_for([step.value, step.low, step.high], "ns")
    return f"{scale.text(step.value)} (95 % interval {scale.number(step.low)}–{scale.number(step.high)})"


def _ratio(ratio: Interval) -> str:
    return f"{ratio.value:.2f} times ({ratio.low:.2f}–{ratio.high:.2f})"


def _shares(groups: Iterable[Group]) -> str:
    return " and ".join(f"{g.key} ({_percent(g.share)})" for g in groups)


def _percent(share: float | None) -> str:
    if share is None:
        return units.ABSENT
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
