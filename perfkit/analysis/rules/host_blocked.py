"""The rule about a single operator that keeps the host, and so the GPU, for milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfkit import units
from perfkit.analysis.line_results import SourceLine
from perfkit.analysis.results import Finding
from perfkit.analysis.rules.base import ON_A_GPU, Case, Rule
from perfkit.analysis.words import number
from perfkit.profile_names import NO_EFFECT, effect_of_call

_MUCH = 0.02  # of the step
_USUAL_NS = 50_000.0  # without a kernel for each launch: more is not launching alone
_SEVERAL = 20  # launches a call: with fewer it is not launching that takes LONG_CALL_NS
_MOST = 0.8  # of the idle time: its lines are those of what took it
_ON_THE_HOST = "Make the data on the GPU (device='cuda'), or ahead, in the workers of a DataLoader."
_LATER = "Profile later steps: leave the first one out (perfkit capture --warmup, or wait= of torch.profiler.schedule)."
_EQUAL = (
    "Keep shapes equal from step to step, so that what was found serves again, and run each shape once before the "
    "steps that count. torch.backends.cudnn.benchmark=False searches less."
)
_FEWER = "Use fused=True where the optimizer has it, or fewer and larger parameters (flattened, stacked)."
_ONCE = "Make these calls once, before the steps: what they load or create can be kept."
_ONE_BY_ONE = (
    "Choose an operator or a layout that does all of it in one kernel, replay the step as a CUDA graph, or let "
    "torch.compile write the kernel."
)


def blocked_long(case: Case) -> list[dict[str, Any]]:
    """The operators that the rule reports, as the reader's `held_by` has them: over all steps."""
    held = case.facts.get("held_by") or []
    return [one for one in held if case.of_step(case.per_step(one["ns"])) >= _MUCH]


def call_inside(case: Case) -> dict[str, Any] | None:
    """The CUDA call, as `facts["api"]` has it, in which operators that the rule reports surely spend most of their
    time: the longest that neither launches, waits nor allocates. None where no operator does."""
    calls = [call for call in case.facts.get("api") or [] if effect_of_call(call["name"]) == NO_EFFECT]
    inside = any(_in_calls(case, one) for one in blocked_long(case))
    return max(calls, key=lambda call: float(call["ns"]), default=None) if inside else None


def _in_calls(case: Case, one: dict[str, Any]) -> bool | None:
    """Return whether an operator spent most of its time inside such calls; None if that is unknown.

    `held_by` counts them together with dispatch: where all that the gaps have of the one is less than half of it, most
    of it was the other.
    """
    gaps = case.report.accounting.gaps if case.report.accounting else []
    dispatch, driver = (sum(g.time_ns for g in gaps if g.cause == cause) for cause in ("dispatch", "driver"))
    half = case.per_step(one["ns"]) / 2
    return False if driver < half else True if dispatch < half else None


def _blocked(rule: Rule, case: Case) -> Iterator[Finding]:
    account = case.report.accounting
    if account is None:
        return
    for one in blocked_long(case):
        took = case.per_step(one["ns"])
        left = took if account.timed_step_ns is None else max(account.timed_step_ns - account.kernel_ns, 0.0)
        calls = f"{number(case.per_step(one['count']))} × {one['operator']}{case.a_step}"
        longest = f"the longest {units.text(one['longest_ns'], 'ns')}"
        why, remedy = _cause(case, one)
        yield rule.finding(
            case,
            f"{one['operator']} keeps the GPU waiting for {units.text(took, 'ns')}{case.a_step}",
            f"{calls}, {longest}. {why}.",
            took,
            min(took, left),
            remedy=remedy,
            lines=_lines(case, one),
        )


def _lines(case: Case, one: dict[str, Any]) -> list[SourceLine]:
    """Return the lines that call an operator of `held_by`, by its kernels; where it has none and most of the GPU's idle
    time is its own, those of that time. Others are not its lines."""
    rows = case.is_in("operator", (one["operator"],))
    if rows.any():
        return case.lines_of(rows, "")
    idle = sum(gap.time_ns for gap in case.report.accounting.gaps) if case.report.accounting else 0.0
    return case.lines_of(None, "idle_ns") if case.per_step(one["ns"]) >= _MOST * idle else []


def _cause(case: Case, one: dict[str, Any]) -> tuple[str, str]:
    """Return why an operator of `held_by` takes long, and the remedy; "" for the rule's own."""
    if not one["launches"]:
        return _without_launches(case, one)
    launches = one["launches"] / one["count"]  # a call
    each = one["ns"] / one["launches"]
    if launches >= _SEVERAL and each < _USUAL_NS:
        idle = units.text(each, "ns")
        many = f"{launches:,.0f} kernels a call, one by one"
        return f"It launches {many}, and the GPU idles {idle} before each of them", _ONE_BY_ONE
    inside = f". {_inside(case)}" if _in_calls(case, one) else ""
    known = "An operator that knows its kernel launches it within tens of µs"
    if "_foreach_" in one["operator"]:
        return f"{known}; this one goes over its list of tensors first{inside}", _FEWER
    remedy = "" if "attention" in one["operator"] else _EQUAL
    return f"{known}; this one plans or compiles it first{inside}", remedy


def _without_launches(case: Case, one: dict[str, Any]) -> tuple[str, str]:
    in_calls = _in_calls(case, one)
    if not in_calls:
        or_else = "" if in_calls is False else ", or inside CUDA calls"
        return f"It launches nothing: it works on the host, on tensors of the CPU{or_else}", _ON_THE_HOST
    if case.steps > 1:
        return f"It launches nothing. {_inside(case)}", _ONCE
    return f"{_inside(case)}: the first use of a GPU in a process loads and initialises its libraries", _LATER


def _inside(case: Case) -> str:
    longest = call_inside(case)
    named = f", {longest['name']} above all ({units.text(longest['ns'], 'ns')})" if longest else ""
    return f"Most of that time is inside CUDA calls that launch nothing{named}"


SLOW_OPERATOR = Rule(
    name="slow-operator",
    summary="one operator keeps the host, and the GPU waits for it",
    where=ON_A_GPU,
    what="Most operators launch their kernels within tens of µs. Some search for the fastest kernel, or compile one, "
    "the first time that they see a shape: cuDNN's attention and convolutions, autotuners, libraries that load kernels "
    "late. Where the shape is new in every step, as that of a cache that grows by a token, so is the search. Others "
    "launch a kernel for every sample of a batch, or work on the CPU, on data that the program made there. The first "
    "operator of a process that uses a GPU initialises it.",
    recognised="Time of the step in which no kernel runs while the host is in the operator itself, outside of those "
    "that it calls, in calls of 1 ms or more, as many as there are steps or more.",
    estimate="All of that time, at most what the step without the profiler takes beyond its kernels. `gpu-idle` does "
    "not count it again.",
    remedies=(
        "Keep shapes equal from step to step, so that what was found serves again: a static cache of keys and values, "
        "padding. Or choose an implementation that plans nothing: for attention "
        "torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION).",
    ),
    example="A decoder whose cache grows: cuDNN's attention plans again for every token, 66 ms on an H100's host for "
    "7 µs of kernels.",
    find=_blocked,
)
RULES = (SLOW_OPERATOR,)
