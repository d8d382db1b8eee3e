"""The rule about what stands between the kernels of a CPU step: the framework, and the program's own code."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.analysis.results import Finding
from perfkit.analysis.rules.base import ON_A_CPU, Case, Rule
from perfkit.analysis.rules.idle import causes_of, most_of, profiled_of, share_of
from perfkit.analysis.step_results import OWN_CODE_NS, Gap
from perfkit.analysis.words import percent

_MANY, _SLOW_EVENT_NS = 20, 100_000.0  # events a step; an event that takes longer does more than to find its kernel
_OVERHEAD = ("Python", "dispatch", "autograd", "allocation")
_FIND = "Find it with a profiler of Python (py-spy, cProfile). What computes can go to operators of PyTorch"
_OWN_CODE = f"{_FIND}; what prepares data, to the workers of a DataLoader."
_AS_WELL = "Kernels waited for a core meanwhile (unequal-calls), and so may the code between them have. "
_LARGE = (
    "Operators cost tens of µs each, and this is more: tensors that are given back to the system (fresh-pages), or a "
    "busy machine. Fewer temporaries, in-place operators, an allocator that keeps memory."
)
_COMPILED = (
    "Part of it is compiled already: take more into one graph (torch.compile(fullgraph=True) names what breaks it), "
    "and take a larger batch."
)


def _overhead(rule: Rule, case: Case) -> Iterator[Finding]:
    account = case.report.accounting
    if account is None:
        return
    gaps = [gap for gap in account.gaps if gap.cause in _OVERHEAD]
    busy = any(finding.name == "unequal-calls" for finding, _ in case.claims)
    much = account.own_code(case.per_step(len(case.frame)))
    own_code = [much] if much and not busy else []
    if own_code:
        saving, of = most_of(account, own_code, case.report.device)
        yield rule.finding(
            case,
            f"Code that calls no operator takes {percent(share_of(account, own_code))} of the {profiled_of(case)}",
            f"{units.text(own_code[0].time_ns / case.per_step(len(case.frame)), 'ns')} for each kernel: more than "
            "PyTorch needs between two operators. It is the program's own (Python, NumPy, reading and preparing data), "
            "or compiled code that records no operators (AOTInductor, cpp_wrapper, extensions in C++), whose FLOP "
            f"are unknown. {of}",
            own_code[0].time_ns,
            saving,
            remedy=f"{_FIND}." if case.loader_workers else _OWN_CODE,
            measure="python_ns",
        )
    if gaps := [gap for gap in gaps if gap not in own_code]:
        saving, of = most_of(account, gaps, case.report.device)
        yield rule.finding(
            case,
            f"The framework around the kernels takes {percent(share_of(account, gaps))} of the {profiled_of(case)}",
            f"{causes_of(gaps)}. {_AS_WELL if busy else ''}{of}".strip(),
            sum(gap.time_ns for gap in gaps),
            saving,
            remedy=_LARGE if _slow_events(case, gaps) else _COMPILED if case.compiled else "",
        )


def _slow_events(case: Case, gaps: list[Gap]) -> bool:
    """Return whether the time between kernels is longer for each recorded event than dispatch."""
    events = case.per_step(case.facts.get("events") or 0)
    return events >= _MANY and sum(gap.time_ns for gap in gaps) > _SLOW_EVENT_NS * events


OVERHEAD = Rule(
    name="overhead",
    summary="the framework around the kernels takes much of the step",
    where=ON_A_CPU,
    what="Python, the dispatcher, autograd and the allocator stand between the kernels of a CPU step. With small "
    "tensors that is more than the kernels themselves. A program's own Python code stands there too.",
    recognised="Time of the profiled step in which no kernel runs, by cause. Tensors made of Python lists are a cause, "
    f"and a finding, of their own. Python of more than {units.text(OWN_CODE_NS, 'ns')} for each kernel is a finding of "
    "its own, the program's own code.",
    estimate="All of it, scaled to the step without the profiler where that was timed.",
    remedies=("Fewer and larger operators: torch.compile, a larger batch, foreach and fused optimizers.",),
    example="A two-layer MLP at batch 1: 20 operators of 3 µs in a step of 400 µs.",
    find=_overhead,
    rank=4,
)
RULES = (OVERHEAD,)
