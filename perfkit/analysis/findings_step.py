"""Findings about the step: time without a kernel by cause, copies between host and GPU, kernels too small to matter."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.analysis.exposed import COLLECTIVE, COPY
from perfkit.analysis.findings_kernels import share
from perfkit.analysis.judging import TOO_SMALL
from perfkit.analysis.results import Accounting, BackendReport, Exposed, Finding, Gap
from perfkit.analysis.source import NCU
from perfkit.analysis.words import cropped, listed, percent

# Causes of gaps (`perfkit.analysis.accounting`) in which the host has not got as far as the next launch.
_HOST = ("Python", "dispatch", "autograd", "host code", "launch", "driver", "allocation", "latency")
_OVERHEAD = ("Python", "dispatch", "autograd", "allocation")
_WAITS = {
    "sync": (
        "The host waits for the GPU, and then the GPU for the host",
        "Find what reads a value back inside the step: .item(), .cpu(), print(loss), nonzero, boolean masks. Read it "
        "less often, or copy it with non_blocking=True and look a step later.",
    ),
    "data": (
        "Loading the batch",
        "Load ahead: DataLoader workers, pin_memory=True, prefetch_factor; or prepare the data once.",
    ),
    "CUDA allocation": (
        "Allocating and freeing GPU memory",
        "Let the caching allocator keep it: equal shapes from step to step, no empty_cache, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ),
}  # fmt: skip
_COPY = {
    "HtoD": "Copy earlier and beside the kernels: pinned memory (pin_memory=True) and non_blocking=True; keep on the "
    "GPU what every step needs.",
    "DtoH": "Read back less, or less often; pinned memory and non_blocking=True keep the host from waiting.",
    "DtoD": "Avoid the copy: write into place, or keep one layout.",
}  # fmt: skip


def gpu_idle(report: BackendReport) -> Iterator[Finding]:
    """The GPU has nothing to run because the host has not launched it yet."""
    account = report.accounting
    if account is None or report.device != "cuda":
        return
    gaps = [gap for gap in account.gaps if gap.cause in _HOST]
    saving, of = _most(account, gaps, report.device)
    if not gaps:
        return
    yield Finding(
        name="gpu-idle",
        title=f"The GPU waits for the host during {percent(_share(account, gaps))} of the {_profiled(report)}",
        evidence=f"No kernel runs while the host is not ready with the next launch: {_by_cause(gaps)}. {of}",
        remedy="Launch less, or ahead: a CUDA graph (torch.compile(mode='reduce-overhead')), a larger batch, fused and "
        "foreach operators.",
        time_ns=sum(gap.time_ns for gap in gaps),
        saving_ns=saving,
        share=share(report, saving),
    )


def overhead(report: BackendReport) -> Iterator[Finding]:
    """On a CPU: everything around the kernels that is none of them."""
    account = report.accounting
    if account is None or report.device != "cpu":
        return
    gaps = [gap for gap in account.gaps if gap.cause in _OVERHEAD]
    saving, of = _most(account, gaps, report.device)
    if not gaps:
        return
    yield Finding(
        name="overhead",
        title=f"The framework around the kernels takes {percent(_share(account, gaps))} of the {_profiled(report)}",
        evidence=f"{_by_cause(gaps)}. {of}",
        remedy="Fewer and larger operators: torch.compile, a larger batch, foreach and fused optimizers.",
        time_ns=sum(gap.time_ns for gap in gaps),
        saving_ns=saving,
        share=share(report, saving),
    )


def waiting(report: BackendReport) -> Iterator[Finding]:
    """Gaps of other causes, each with a remedy of its own."""
    account = report.accounting
    if account is None:
        return
    for gap in account.gaps:
        if gap.cause not in _WAITS:
            continue
        said, remedy = _WAITS[gap.cause]
        saving, of = _most(account, [gap], report.device)
        waits = sorted(report.waits, key=lambda w: -w.time_ns)[:2] if gap.cause == "sync" else []
        calls = f" Waits: {listed([f'{w.count} × {w.name}' for w in waits])}." if waits else ""
        yield Finding(
            name=gap.cause.replace(" ", "-").lower(),
            title=f"{said}: {percent(gap.share)} of the {_profiled(report)}",
            evidence=f"No kernel runs for {units.text(gap.time_ns, 'ns')} meanwhile. {of}{calls}",
            remedy=remedy,
            time_ns=gap.time_ns,
            saving_ns=saving,
            share=share(report, saving),
        )


def copies(report: BackendReport) -> Iterator[Finding]:
    """Copies of each direction, by the time in which the GPU does nothing else."""
    rates = {transfer.name: transfer.bandwidth for transfer in report.transfers}
    for copy in report.exposed:
        remedy = next((text for way, text in _COPY.items() if f" {way}" in copy.name), None)
        if copy.kind != COPY or remedy is None:
            continue
        rate = rates.get(copy.name)
        title = f"{copy.name}: {copy.count:,.0f} copies{_a(report)} take {units.text(copy.time_ns, 'ns')}"
        moved = f"; they move {units.text(rate, 'B/s')}." if rate else "."
        yield from _uncovered(report, copy, f"copies-{copy.name.split()[1].lower()}", title, moved, remedy)


def collectives(report: BackendReport) -> Iterator[Finding]:
    """Communication between GPUs that no computation covers."""
    for one in report.exposed:
        if one.kind == COLLECTIVE:
            title = f"{one.count:,.0f} collectives{_a(report)} take {units.text(one.time_ns, 'ns')}"
            remedy = (
                "Overlap them with computation (bucketed or asynchronous gradients, prefetching), send less (bf16, "
                "gradient accumulation), or balance the ranks: a collective also waits for the slowest."
            )
            yield from _uncovered(report, one, "collectives", title, ".", remedy)


def _uncovered(report: BackendReport, one: Exposed, name: str, title: str, more: str, remedy: str) -> Iterator[Finding]:
    if one.exposed_ns is None:
        return
    yield Finding(
        name=name,
        title=title,
        evidence=f"For {units.text(one.exposed_ns, 'ns')} of it the GPU runs nothing else{more}",
        remedy=remedy,
        time_ns=one.time_ns,
        saving_ns=one.exposed_ns,
        share=share(report, one.exposed_ns),
        kernels=[one.name],
        count=one.count,
    )


def tiny_kernels(report: BackendReport) -> Iterator[Finding]:
    """Kernels so short that launching them is most of their time; of a trace, for ncu serialises what it measures."""
    if report.kind == NCU:
        return
    small = next((w for w in report.withheld if w.why == TOO_SMALL), None)
    groups = [g for g in report.kernels if g.withheld == TOO_SMALL]
    if small is None or not groups:
        return
    largest = sorted(groups, key=lambda g: -g.withheld_ns)[:3]
    yield Finding(
        name="tiny-kernels",
        title=f"{small.count:,.0f} kernels{_a(report)} are shorter than 5 µs: {percent(small.share)} of kernel time",
        evidence="Launch, start and end are most of the time of so short a kernel. The largest: "
        + "; ".join(f"{_times(g.count)}{cropped(g.key)}, {units.text(g.withheld_ns, 'ns')}" for g in largest)
        + ".",
        remedy="Merge them: torch.compile fuses elementwise chains, foreach and fused optimizers join per-tensor "
        "kernels, a larger batch makes each worth its launch.",
        time_ns=small.time_ns,
        saving_ns=small.time_ns,
        share=share(report, small.time_ns),
        kernels=[g.key for g in largest],
        count=small.count,
    )


def _most(account: Accounting, gaps: list[Gap], device: str) -> tuple[float, str]:
    """The most that ending `gaps` saves, and how that is known.

    A profiler lengthens gaps, and not the kernels of a GPU: what the step without a profiler leaves beside the kernels
    bounds all gaps together, and theirs is their share of that. On a CPU it lengthens both.
    """
    own = sum(g.time_ns for g in gaps)
    if account.timed_step_ns is None:
        return own, "The profiler itself lengthens the host's part."
    if device == "cpu":
        return own * min(1.0, account.timed_step_ns / account.profiled_step_ns), ""
    recording = sum(g.time_ns for g in account.gaps if g.cause == "profiler")
    every = account.profiled_step_ns - account.kernel_ns - recording
    left = max(account.timed_step_ns - account.kernel_ns, 0.0)
    if left >= every:
        return own, ""
    beside = f"Without the profiler the step leaves {units.text(left, 'ns')} beside its kernels, which bounds this."
    return own * left / every, beside


def _share(account: Accounting, gaps: list[Gap]) -> float:
    return sum(g.time_ns for g in gaps) / account.profiled_step_ns if account.profiled_step_ns else 0.0


def _by_cause(gaps: list[Gap]) -> str:
    return listed([f"{gap.cause} {percent(gap.share)}" for gap in gaps[:4] if gap is gaps[0] or gap.share >= 0.005])


def _times(count: float) -> str:
    return f"{count:,.0f} × " if count >= 1.5 else ""


def _a(report: BackendReport) -> str:
    return " a step" if report.per == "step" else ""


def _profiled(report: BackendReport) -> str:
    return "profiled step" if report.per == "step" else report.per
