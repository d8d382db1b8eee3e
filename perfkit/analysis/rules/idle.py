"""Rules about time without a kernel, by its cause: the host is late, the framework takes long, a batch is awaited."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from perfkit import units
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.rules.base import ON_A_GPU, Case, Rule
from perfkit.analysis.rules.host_blocked import blocked_long, call_inside
from perfkit.analysis.step_results import Accounting, Gap
from perfkit.analysis.words import listed, percent
from perfkit.profile_names import ALLOCATION, COPY, WAIT, effect_of_call
from perfkit.units import cropped

# Causes of gaps (`perfkit.analysis.report.accounting`) in which the host has not got as far as the next launch.
_HOST = ("Python", "dispatch", "autograd", "host code", "launch", "driver", "allocation", "latency")


_UNTOLD = 0.5  # of the step
_AHEAD_OF_IT = (
    "Do it ahead: once before the loop, in the workers of a DataLoader, or on another thread while the GPU works. "
    "Launching less changes nothing of it."
)
_LOADS = (
    "The first use of a kernel or library loads it: profile later steps (perfkit capture --warmup, or wait= of "
    "torch.profiler.schedule). Where it comes again, keep shapes equal from step to step."
)
_COMPILING = re.compile(r"_dynamo|_inductor|cudagraph|\btriton/")
_COMPILES = (
    "Compiling, and recording a CUDA graph, happen once for each shape: profile later steps (perfkit capture --warmup, "
    "or wait= of torch.profiler.schedule). Where it comes again, keep shapes equal from step to step."
)
_AROUND_GRAPHS = (
    "Most of the kernels are replayed by CUDA graphs. Take more of the step into one graph, and prepare what it needs "
    "(copies, random numbers) on another stream while it runs; a larger batch lengthens what a launch brings."
)
_WITHOUT_GRAPHS = "Launch less, or ahead: a larger batch, torch.compile, fused and foreach operators."
_IN_XLA = (
    "Launch less, or ahead: several steps in one jitted function (jax.lax.scan), a larger batch. Read values back "
    "(float, block_until_ready) after many steps, not after each."
)
_ELSEWHERE = (WAIT, COPY, ALLOCATION)  # calls whose time other findings are about
_LONG_CALL = 10e6  # ns: no call that only launches or allocates takes as long in a step that repeats
_MUCH = 0.1  # of the step
_RULED = 0.5  # of the timed step without a kernel, and of that by the host: it sets the pace


def _idle(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    account = case.report.accounting
    if account is None:
        return
    gaps = _without_host_blocked(case, [gap for gap in account.gaps if gap.cause in _HOST])
    if case.about.replays and account.timed_step_ns is not None:
        yield _replayed(rule, case, account.timed_step_ns, account.timed_step_ns - account.kernel_ns)
    elif gaps := (yield from _long(rule, case, account, gaps)):
        saving, of = most_of(account, gaps, case.report.device, _host_blocked(case))
        lack = f"No kernel runs while the host is not ready with the next launch: {causes_of(gaps)}."
        delay = case.facts.get("launch_delay") or {}
        yield rule.finding(
            case,
            f"The GPU waits for the host during {percent(share_of(account, gaps))} of the {profiled_of(case)}",
            " ".join(
                filter(None, (lack, of, _initialising(case), _ahead(case, delay), _host_sets_pace(account, gaps)))
            ),
            sum(gap.time_ns for gap in gaps),
            saving,
            remedy=_of_launches(case),
        )
    if account.other_ns > _UNTOLD * account.profiled_step_ns:
        share = percent(account.other_ns / account.profiled_step_ns)
        yield rule.cannot(f"the profile does not show what the host did in {share} of the {case.report.per}")


def _of_launches(case: Case) -> str:
    """Return the remedy for a host that is late; "" is the rule's own."""
    if case.by_xla:
        return _IN_XLA
    return _AROUND_GRAPHS if _mostly_replayed(case) else "" if _has_graphs(case) else _WITHOUT_GRAPHS


def _long(rule: Rule, case: Case, account: Accounting, gaps: list[Gap]) -> Generator[Finding, None, list[Gap]]:
    """A finding for the long gaps in which the same ran; the gaps without these."""
    for alike in _alike(case.facts.get("long_gaps") or []):
        first, longest = alike[0], units.text(max(gap["ns"] for gap in alike), "ns")
        words, where = f"One gap of {longest}", "at a stretch"
        if alike[1:]:
            words, where = f"{len(alike)} gaps of up to {longest}", "in them"
        took = case.per_step(sum(gap["ns"] for gap in alike))
        gap = next((g for g in gaps if g.cause == first["cause"]), None)
        if gap is None or not first["name"] or case.of_step(took) < _MUCH:
            continue
        part = min(took, gap.time_ns)
        saving, of = most_of(
            account, [msgspec.structs.replace(gap, time_ns=part)], case.report.device, _host_blocked(case)
        )
        yield rule.finding(
            case,
            f"{words}: the host is in {cropped(first['name'])}",
            f"No kernel runs in {percent(took / account.profiled_step_ns)} of the {profiled_of(case)} {where}, "
            f"most of it by {first['cause']}. {of}",
            part,
            saving,
            remedy=_of_gap(first),
        )
        left = msgspec.structs.replace(gap, time_ns=gap.time_ns - part, share=gap.share * (1 - part / gap.time_ns))
        gaps = [left if g is gap else g for g in gaps if g is not gap or left.time_ns > 0]
    return gaps


def _alike(gaps: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The gaps in which the same ran for the same cause, together: a gap may come in each step."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for gap in gaps:
        found.setdefault((gap["name"], gap["cause"]), []).append(gap)
    return list(found.values())


def _of_gap(one: dict[str, str]) -> str:
    """Return the remedy for one long gap."""
    if _COMPILING.search(one["name"]):
        return _COMPILES
    return _LOADS if one["cause"] in ("launch", "driver") else _AHEAD_OF_IT


def _mostly_replayed(case: Case) -> bool:
    """Return whether most of what the GPU did was replayed by CUDA graphs: it is launched at once as it is."""
    replays = case.facts.get("replays")
    return replays is not None and 2 * replays["activities"] > len(case.frame)


def _has_graphs(case: Case) -> bool:
    """Return whether the calls are those of CUDA or HIP, which have graphs; of no calls it is assumed."""
    calls = [call["name"] for call in case.facts.get("api") or []]
    return not calls or any(name.startswith(("cu", "hip")) for name in calls)


def _host_blocked(case: Case) -> float:
    """Return the time of single slow operators in the gaps, of which `rules.host_blocked` speaks, ns a step."""
    return sum(case.per_step(one["ns"]) for one in blocked_long(case))


def _without_host_blocked(case: Case, gaps: list[Gap]) -> list[Gap]:
    """The gaps without that."""
    held, kept = _host_blocked(case), []
    for gap in gaps:
        part = min(held, gap.time_ns) if gap.cause in ("dispatch", "driver") else 0.0
        held, left = held - part, 1 - part / gap.time_ns if gap.time_ns else 1.0
        kept.append(msgspec.structs.replace(gap, time_ns=gap.time_ns - part, share=gap.share * left))
    return sorted((gap for gap in kept if gap.time_ns > 0), key=lambda gap: -gap.time_ns)


def _replayed(rule: Rule, case: Case, step: float, left: float) -> Finding:
    """Judge steps that replay CUDA graphs: the profiled ones do not, so their gaps say nothing of the timed ones."""
    return rule.finding(
        case,
        f"No kernel runs during {percent(left / step)} of a step that replays CUDA graphs",
        f"The timed step leaves {units.text(max(left, 0.0), 'ns')} beyond its kernels: gaps between the kernels of a "
        "graph, its launch, and what runs outside of it. The profiled steps launch kernel by kernel: what the GPU "
        "waits for in them is not a part of it.",
        left,
        left,
        remedy="Fewer and longer kernels: fuse small ones, take a larger batch. Or more of the step in one graph.",
    )


def _initialising(case: Case) -> str:
    """A sentence about the call that shows that a process began, rather than repeated, its work; "" without one."""
    calls = [c for c in case.facts.get("api") or [] if c["count"] and effect_of_call(c["name"]) not in _ELSEWHERE]
    calls = [c for c in calls if c != call_inside(case)]  # which is reported with the operator that makes it
    longest = max(calls, key=lambda call: call["ns"], default=None)
    if longest is None or longest["ns"] / longest["count"] < _LONG_CALL or longest["ns"] < _MUCH * case.step_ns:
        return ""
    account = case.report.accounting
    waits = _without_host_blocked(case, [gap for gap in account.gaps if gap.cause in _HOST]) if account else []
    if case.per_step(longest["ns"]) > sum(gap.time_ns for gap in waits):
        return ""  # a part of it is elsewhere: next to kernels, outside of the steps, in another finding
    return (
        f"{longest['name']} alone took {units.text(longest['ns'], 'ns')}: the first step of a process loads and "
        "initialises the GPU's libraries. Profile a later one."
    )


def _ahead(case: Case, delay: dict[str, float | None]) -> str:
    """Return a sentence on the host's lead over the GPU."""
    median = delay.get("median_ns")
    if median is None:
        return ""
    growth = delay.get("growth_ns")
    during = f"during {'a' if case.a_step else 'the'} {case.report.per}"
    falls = f" and falls {during}" if growth is not None and growth < 0 else ""
    grows = f" and grows {during}" if growth is not None and growth > 0 else ""
    return (
        f"The host's lead, from a launch to the start of its kernel, has a median of {units.text(median, 'ns')}"
        f"{falls or grows}."
    )


def _host_sets_pace(account: Accounting, gaps: list[Gap]) -> str:
    """A sentence about what faster kernels are worth in a step that the host paces; "" of others.

    Only the timed step shows that: the host paces the profiled one more than that.
    """
    step, waits = account.timed_step_ns, sum(gap.time_ns for gap in account.gaps)
    if step is None or step - account.kernel_ns < _RULED * step or sum(g.time_ns for g in gaps) < _RULED * waits:
        return ""
    return "The host sets the pace of this step: shorter kernels alone make it no shorter, fewer launches do."


def waiting(rule: Rule, case: Case, cause: str, said: str, remedy: str = "") -> Iterator[Finding]:
    """Report time without a kernel by one `cause`, which `said` names at the head of the finding."""
    account = case.report.accounting
    for gap in account.gaps if account else ():
        if account is None or gap.cause != cause:
            continue
        saving, of = most_of(account, [gap], case.report.device)
        waits = sorted(case.report.waits, key=lambda w: -w.time_ns)[:2] if cause == "sync" else []
        calls = f" Waits: {listed([f'{w.count} × {w.name}' for w in waits])}." if waits else ""
        yield rule.finding(
            case,
            f"{said}: {percent(gap.share)} of the {profiled_of(case)}",
            f"No kernel runs for {units.text(gap.time_ns, 'ns')} meanwhile. {of}{calls}",
            gap.time_ns,
            saving,
            remedy=remedy,
        )


def most_of(account: Accounting, gaps: list[Gap], device: str, held: float = 0.0) -> tuple[float, str]:
    """The most that ending `gaps` saves, and how that is known.

    A profiler lengthens gaps, and not the kernels of a GPU: what the step without a profiler takes beyond the kernels
    bounds all gaps together, and theirs is their share of that. On a CPU it lengthens both. Nor does it lengthen what
    single operators have `held` up (ns a step), which is not in `gaps`.
    """
    own = sum(g.time_ns for g in gaps)
    if account.timed_step_ns is None:
        return own, "The profiler itself lengthens the host's part."
    if device == "cpu":
        return own * min(1.0, account.timed_step_ns / account.profiled_step_ns), ""
    recording = sum(g.time_ns for g in account.gaps if g.cause == "profiler")
    every = account.profiled_step_ns - account.kernel_ns - recording - held
    left = max(account.timed_step_ns - account.kernel_ns - held, 0.0)
    if left >= every:
        return own, ""
    besides = "its kernels and slow operators" if held else "its kernels"
    beside = f"Without the profiler the step takes {units.text(left, 'ns')} beyond {besides}, which bounds this."
    return own * left / every, beside


def share_of(account: Accounting, gaps: list[Gap]) -> float:
    """Return the share of the profiled step in these gaps."""
    return sum(g.time_ns for g in gaps) / account.profiled_step_ns if account.profiled_step_ns else 0.0


def causes_of(gaps: list[Gap]) -> str:
    """Return the largest causes with their shares."""
    return listed([f"{gap.cause} {percent(gap.share)}" for gap in gaps[:4] if gap is gaps[0] or gap.share >= 0.005])


def profiled_of(case: Case) -> str:
    """Return the name of what shares are of."""
    return "profiled step" if case.report.per == "step" else case.report.per


GPU_IDLE = Rule(
    name="gpu-idle",
    summary="the GPU waits for the host to launch (launch-bound)",
    where=ON_A_GPU,
    what="The kernels are shorter than what the host needs to launch them: the GPU runs dry again and again. The host "
    "should run ahead: from a launch to the start of its kernel, time should pass in which the GPU works off what was "
    "launched before.",
    recognised="Time of the step in which no kernel runs while the host is in Python, dispatch, autograd, CUDA calls, "
    "or in the latency of a launch. The evidence gives the host's lead; a few µs mean that each kernel waits for its "
    "launch.",
    estimate="All of that time. Where the step was also timed without the profiler, which lengthens the host's part, "
    "only what that step takes beyond its kernels. Steps that replay CUDA graphs are judged by that alone.",
    remedies=(
        "Launch less, or ahead: a CUDA graph (torch.compile(mode='reduce-overhead')), a larger batch, fused and "
        "foreach operators.",
    ),
    example="40 kernels of 4 µs and 400 µs of Python: the GPU works a third of the time, whatever its speed.",
    find=_idle,
    rank=3,
)
_CUDA_ALLOCATION = Rule(
    name="cuda-allocation",
    summary="GPU memory is allocated and freed inside the step",
    where=ON_A_GPU,
    what="cudaMalloc and cudaFree stop the GPU. PyTorch's caching allocator needs neither once shapes repeat.",
    recognised="Time of the step in which no kernel runs inside CUDA calls that allocate or free.",
    estimate="All of it.",
    remedies=(
        "Let the caching allocator keep it: equal shapes from step to step, no empty_cache, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ),
    example="`torch.cuda.empty_cache()` after each step.",
    find=lambda rule, case: waiting(rule, case, "CUDA allocation", "Allocating and freeing GPU memory"),
    rank=3,
)
RULES = (GPU_IDLE, _CUDA_ALLOCATION)
