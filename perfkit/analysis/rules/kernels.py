"""Rules about kernels without their counters: kinds that stay below their roof, and kernels too small to matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from perfkit import units
from perfkit.analysis.exposed import exposed_ns
from perfkit.analysis.results import Finding, Group
from perfkit.analysis.roofline.excluded import FULL, TOO_SHORT_NS
from perfkit.analysis.roofline.excluded import multiprocessors as sms
from perfkit.analysis.roofline.roof import Booleans, Reals
from perfkit.analysis.rules.base import ON_A_GPU, ON_BOTH, Case, Rule
from perfkit.analysis.rules.remedies import remedy
from perfkit.analysis.rules.roof_questions import NEAR, main_reason
from perfkit.analysis.rules.uneven_kernels import left_out, waited
from perfkit.analysis.source import NCU
from perfkit.analysis.words import apart, bound, call, number, percent

_NAMED = 3
_LONG_NS = 20e3  # a kernel whose blocks are worth a word
_NAMES = {"fft": "FFT", "random": "Random number"}  # of families, in a sentence
_AS_MUCH = 0.8  # of the saving that is to have a cause
_NO_REASON = "Its counters name no single reason: Nsight Compute's own window shows them line by line of its source."
_UNTOLD = "The report does not say why: `ncu --set full` collects stall reasons, access patterns and occupancy."


def _below_roof(rule: Rule, case: Case) -> Iterator[Finding]:
    """Kernel groups that nothing explains, by kind and bound: what reaching their roofs would save.

    In a report of Nsight Compute each kernel is one of the user's: they stay apart.
    """
    report = case.report
    buckets: dict[tuple[str, str, str], list[Group]] = {}
    waiting = waited(case)
    without = "" if waiting is None else left_out(case, waiting)
    for group in report.headroom if waiting is None else _usual(case, report.headroom, waiting):
        below = group.efficiency is not None and group.efficiency < NEAR and not group.above_roof
        if below and main_reason(group) is None and not _has_cause(case, group):
            single = group.key if report.kind == NCU else ""
            buckets.setdefault((single, group.family, group.bound), []).append(group)
    for (single, family, limit), groups in buckets.items():
        judged, roof = sum(g.judged_ns for g in groups), sum(g.roof_ns or 0.0 for g in groups)
        named = [
            f"{call(g)} at {percent(g.efficiency)}, {units.text(g.headroom_ns, 'ns')} above it" for g in groups[:_NAMED]
        ]
        more = f"; {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
        kind = _NAMES.get(family, family.capitalize())
        who, whose = (f"{single} reaches", "its") if single else (f"{kind} kernels reach", "their")
        one = "Their roof is" if len({g.ceiling for g in groups}) == 1 else "Their roofs differ; that of the first is"
        yield rule.finding(
            case,
            f"{who} {percent(roof / judged if judged else None)} of {whose} roof, {bound(limit)}",
            f"Its roof is {groups[0].ceiling}."
            if single
            else f"{one} {groups[0].ceiling}. The largest: {'; '.join(named)}{more}.{without}",
            sum(g.time_ns for g in groups),
            sum(g.headroom_ns or 0.0 for g in groups),
            count=sum(g.count for g in groups),
            kernels=list(dict.fromkeys(g.key for g in groups)),
            lines=case.lines_of(_rows_of(case, groups), ""),
            remedy=(_UNTOLD if report.missing else _NO_REASON) if single else f"{remedy(case, groups, family, limit)}.",
        )


def _usual(case: Case, groups: Sequence[Group], waiting: Reals) -> Sequence[Group]:
    """The groups as if no row had waited (`rules.uneven_kernels.waited`)."""
    lost: dict[tuple[str, str], float] = {}
    for i in np.flatnonzero(waiting).tolist():
        key = case.short_names[i], case.shapes[i]
        lost[key] = lost.get(key, 0.0) + float(waiting[i])
    made = []
    for group in groups:
        less = case.per_step(lost.get((group.key, group.shapes), 0.0))
        judged = group.judged_ns - less
        if less <= 0 or judged <= 0 or group.roof_ns is None or group.headroom_ns is None:
            made.append(group)
            continue
        made.append(msgspec.structs.replace(
            group, time_ns=group.time_ns - less, judged_ns=judged, efficiency=group.roof_ns / judged,
            headroom_ns=max(group.headroom_ns - less, 0.0),
        ))  # fmt: skip
    return sorted(made, key=lambda g: -(g.headroom_ns or 0.0))


def _rows_of(case: Case, groups: Sequence[Group]) -> Booleans:
    """The rows of kernel groups."""
    rows = [case.named_short(group.key) & (case.shapes == group.shapes) for group in groups]
    return np.asarray(np.any(rows, axis=0), bool)


def _has_cause(case: Case, group: Group) -> bool:
    """Return whether findings that save about as much on the group's kernels say why."""
    rows = _rows_of(case, [group])
    return case.explained(rows) >= _AS_MUCH * (group.headroom_ns or 0.0) > 0


def _tiny(rule: Rule, case: Case) -> Iterator[Finding]:
    """Ask a trace only: ncu serialises what it measures."""
    rows = case.is_in("kind", ("gpu_kernel",)) & (np.nan_to_num(case.judged.time, nan=np.inf) < TOO_SHORT_NS)
    if case.report.kind == NCU or not rows.any():
        return
    time = case.time(rows)
    yield rule.finding(
        case,
        f"{_kernels(case, rows, 'is', 'are')} shorter than 5 µs: {percent(time / case.report.kernel_ns)} of kernel "
        "time",
        f"Launch, start and end are most of the time of so short a kernel. The largest: {_largest(case, rows)}.",
        time,
        min(time, case.freed(rows)),
        count=case.per_step(rows.sum()),
        kernels=case.main_kernels(rows),
        lines=case.lines_of(rows, ""),
    )


def _kernels(case: Case, rows: Booleans, one: str, many: str) -> str:
    """Return the number of kernels, with their verb."""
    count = case.per_step(rows.sum())
    return (
        f"{number(count)} kernel{case.a_step} {one}" if count == 1 else f"{number(count)} kernels{case.a_step} {many}"
    )


def _largest(case: Case, rows: Booleans) -> str:
    """The kernels by name among `rows` that take most time, with their number and time."""
    parts = []
    names = case.main_kernels(rows, _NAMED)
    for name, shown in zip(names, apart(names), strict=True):
        own = rows & case.named_short(name)
        times = f"{number(case.per_step(own.sum()))} × " if case.per_step(own.sum()) != 1 else ""
        parts.append(f"{times}{shown}, {units.text(case.time(own), 'ns')}")
    return "; ".join(parts)


def _few_blocks(rule: Rule, case: Case) -> Iterator[Finding]:
    """Find, in a trace with grids and no counters, kernels that leave multiprocessors empty while nothing else runs."""
    multiprocessors = sms(case.facts)
    if case.report.kind == NCU or not multiprocessors:
        return
    blocks = np.prod([case.frame[f"grid_{axis}"].to_numpy(float, na_value=np.nan) for axis in "xyz"], axis=0)
    time = np.nan_to_num(case.judged.time)
    rows = case.is_in("kind", ("gpu_kernel",)) & (time >= _LONG_NS) & ~case.is_in("family", ("collective",))
    rows &= np.nan_to_num(blocks, nan=np.inf) < FULL * multiprocessors
    alone = exposed_ns(case.frame, rows) if rows.any() else None
    if alone is None:
        return
    empty = float((time * (1 - np.nan_to_num(blocks) / multiprocessors))[rows].sum() / time[rows].sum())
    fewest, most = int(blocks[rows].min()), int(blocks[rows].max())
    range_ = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    yield rule.finding(
        case,
        f"{_kernels(case, rows, 'has', 'have')} {range_} block{'' if most == 1 else 's'} for {multiprocessors} "
        f"multiprocessors: {units.text(case.per_step(alone), 'ns')} in which nothing else runs",
        f"{percent(empty)} of the multiprocessors have nothing to do meanwhile. The largest: {_largest(case, rows)}.",
        case.time(rows),
        case.per_step(alone) * empty,
        rows=rows,
    )


RULES = (
    Rule(
        "below-roof", "a kind of kernel stays below what the machine allows", ON_BOTH,
        "The kernels of one family and bound take longer than their roof time, and nothing in the profile explains "
        "why.",
        "Kernel groups under 80 % of their roof, by family and by the resource that sets it. Kernels that a more "
        "telling finding names, with a larger saving, are left out.",
        "The sum of time less roof time: the roof is what this machine was measured to reach, or what a "
        "datasheet says, so it is a bound.",
        ("By family: fuse elementwise work, avoid copies, use fused attention and fused optimizers, larger products.",
         "`ncu --set full` collects stall reasons, access patterns and occupancy of a GPU kernel."),
        "A softmax at 30 % of the bandwidth because it reads its input three times.", _below_roof, rank=61,
    ),
    Rule(
        "tiny-kernels", "kernels so short that launching them is most of their time", ON_A_GPU,
        "A kernel shorter than 5 µs is mostly start and end.",
        "All kernels shorter than 5 µs together, of a trace or a run; copies and fills do not count.",
        "All of their time: merged into others, they cost next to nothing.",
        ("Merge them: torch.compile fuses elementwise chains, foreach and fused optimizers join per-tensor kernels, a "
         "larger batch makes each worth its launch.",),
        "A LayerNorm written with mean, sub, pow, mean, add, rsqrt and mul on small tensors.", _tiny, rank=61,
    ),
    Rule(
        "empty-multiprocessors", "kernels leave multiprocessors without a block, and nothing else runs", ON_A_GPU,
        "A multiprocessor without a block idles for as long as the kernel runs.",
        "Kernels of a trace or a run that are longer than 20 µs and whose grid has fewer blocks than three quarters "
        "of the multiprocessors, while no other kernel runs. Collectives are left out. With counters, "
        "`few-blocks` finds them.",
        "Their time, for the share of multiprocessors without a block.",
        ("Split the work over more blocks: of a kernel of your own, partial results that a second pass joins; of a "
         "library's, a larger batch, or independent products in one call (torch.bmm). Or run something else "
         "meanwhile on another stream.",),
        "A reduction in a single block of 256 threads.", _few_blocks, rank=61,
    ),
)  # fmt: skip
