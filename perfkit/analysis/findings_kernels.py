"""Findings about kernels: those whose counters explain them, and kinds of kernel that stay below their roof."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.analysis.reasons import NEAR
from perfkit.analysis.results import BackendReport, Finding, Group, Reason
from perfkit.analysis.source import NCU
from perfkit.analysis.words import bound, call, capital, listed, percent

_NAMED = 3
_UNTOLD = "The report does not tell why: `ncu --set full` collects stall reasons, access patterns and occupancy."
_FUSE = "Fuse them with their neighbours (torch.compile), so that their tensors pass memory once less"
_BY_FAMILY = {
    "elementwise": _FUSE,
    "normalization": _FUSE,
    "softmax": _FUSE,
    "reduction": _FUSE,
    "loss": _FUSE,
    "dropout": _FUSE,
    "activation": _FUSE,
    "copy": "Avoid the copies: keep one memory layout and dtype, or let a fusing compiler join them with their users",
    "fill": "Avoid the passes: masks belong inside a fused attention (scaled_dot_product_attention) or in a fused "
    "kernel; zeroing is spared by set_to_none=True",
    "optimizer": "Use a fused optimizer (fused=True), and low-precision state where training allows",
    "embedding": "Gather fewer or narrower rows, and sort or deduplicate the indices",
    "index": "Index with slices or precomputed views where possible; sort the indices",
    "attention": "Use a fused attention (scaled_dot_product_attention), which keeps the scores out of memory",
}
_BY_BOUND = {
    "matrix": "Give the matrix units larger products (more rows in a batch, sizes that are multiples of 64), or a "
    "lower precision",
    "vector": "Look for what keeps the arithmetic units waiting: `ncu --set full` tells",
    "memory": "Batch them, so that more work is done on each byte; where there are many small ones, fuse them",
    "l2": "Reuse more in registers and shared memory",
}


def explained(report: BackendReport) -> Iterator[Finding]:
    """A finding for each kernel group that a rule over its counters explains (`perfkit.analysis.reasons`)."""
    for group in report.kernels:
        reason = _main(group)
        if reason is None or reason.saving_ns is None:
            continue
        others = [capital(r.text) for r in group.reasons if r is not reason]
        yield Finding(
            name=reason.name,
            title=f"{call(group)}: {reason.label}",
            evidence=" ".join([capital(reason.text), *others, *_roof(group)]),
            remedy=reason.remedy,
            time_ns=group.time_ns,
            saving_ns=reason.saving_ns,
            share=share(report, reason.saving_ns),
            kernels=[group.key],
            count=group.count,
        )


def below_roof(report: BackendReport) -> Iterator[Finding]:
    """Kernel groups that nothing explains, by kind and bound: what reaching their roofs would save.

    In a report of Nsight Compute each kernel is somebody's own: they stay apart.
    """
    buckets: dict[tuple[str, str, str], list[Group]] = {}
    for group in report.headroom:
        if _main(group) is None and group.efficiency is not None and group.efficiency < NEAR and not group.above_roof:
            own = group.key if report.kind == NCU else ""
            buckets.setdefault((own, group.family, group.bound), []).append(group)
    for (own, family, limit), groups in buckets.items():
        saving = sum(g.headroom_ns or 0.0 for g in groups)
        judged, roof = sum(g.judged_ns for g in groups), sum(g.roof_ns or 0.0 for g in groups)
        named = [f"{call(g)} at {percent(g.efficiency)}, {units.text(g.headroom_ns, 'ns')}" for g in groups[:_NAMED]]
        more = f"; {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
        who, whose = (f"{own} reaches", "its") if own else (f"{family.capitalize()} kernels reach", "their")
        yield Finding(
            name="below-roof",
            title=f"{who} {percent(roof / judged if judged else None)} of {whose} roof, {bound(limit)}",
            evidence=f"Its roof is {groups[0].ceiling}."
            if own
            else f"Their roof is {groups[0].ceiling}. The largest: {'; '.join(named)}{more}.",
            remedy=_UNTOLD if own else f"{_remedy(family, limit, report.device)}.",
            time_ns=sum(g.time_ns for g in groups),
            saving_ns=saving,
            share=share(report, saving),
            kernels=list(dict.fromkeys(g.key for g in groups)),
            count=sum(g.count for g in groups),
        )


def share(report: BackendReport, saving_ns: float) -> float:
    """A saving as a share of the step: the timed one, else the profiled one, else the kernel time."""
    account = report.accounting
    whole = (account.timed_step_ns or account.profiled_step_ns) if account else report.kernel_ns
    return saving_ns / whole if whole else 0.0


def _main(group: Group) -> Reason | None:
    return next((reason for reason in group.reasons if reason.saving_ns is not None), None)


def _roof(group: Group) -> list[str]:
    if group.efficiency is None:
        return []
    return [f"It runs at {percent(group.efficiency)} of its roof: {group.ceiling}."]


def _remedy(family: str, limit: str, device: str) -> str:
    kind = limit.partition("_")[0]
    if kind == "vector" and device == "cpu":
        return "Fuse and vectorise them (torch.compile), and use more threads where there are some"
    if kind in ("memory", "l2") and family in _BY_FAMILY:
        return _BY_FAMILY[family]
    return _BY_BOUND.get(kind, f"Look for what keeps {listed([bound(limit)])} waiting")
