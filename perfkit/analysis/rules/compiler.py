"""torch.compile inside the step: compiling again, and graphs that break."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.analysis import source_lines
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.words import listed, number
from perfkit.units import cropped

_BETWEEN = ("Python", "dispatch", "host code")
_NAMED = 2
_MOST_REASONS = 3


def _recompiled(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    seen = case.facts.get("compiled") or {}
    counted = (case.about.compiler or {}).get("recompilations") or []
    in_steps, spent = case.per_step(seen.get("compilations", 0)), case.per_step(seen.get("compile_ns", 0))
    reasons = list(dict.fromkeys(f"{r['function']}: {cropped(r['reason'])}" for r in counted if r["reason"]))
    why = f" Dynamo's reasons: {'; '.join(reasons[:_NAMED])}." if reasons else ""
    if in_steps:
        yield rule.finding(
            case,
            f"Dynamo compiles {number(in_steps)} ×{case.a_step}, for {units.text(spent, 'ns')}",
            f"The profiled steps hold {seen['compilations']:,} compilations; a step that repeats needs none.{why}",
            spent,
            case.unprofiled(spent),
            count=in_steps,
            lines=source_lines.of_functions(counted),
        )
    elif counted and case.about.steps_run:
        total = sum(r["ns"] or 0.0 for r in counted)
        yield rule.finding(
            case,
            f"Dynamo compiled again {len(counted)} × in {case.about.steps_run} steps, for {units.text(total, 'ns')}",
            f"A program that runs for long pays that once, unless it goes on.{why}",
            0.0,
            0.0,
            count=len(counted) / case.about.steps_run,
            bounded=False,
            lines=source_lines.of_functions(counted),
        )


RECOMPILATION = Rule(
    name="recompilation",
    summary="torch.compile compiles again inside the steps",
    where=ON_BOTH,
    what="Dynamo guards what it compiled: shapes, dtypes, Python values, modes. When a guard fails it compiles again, "
    "for seconds; after eight times it gives up and runs eagerly.",
    recognised="Dynamo's own events of compilations inside the steps of a trace; and of a run, the recompilations that "
    "Dynamo counted, each with the guard that failed.",
    estimate="The time of the compilations in the profiled steps. Earlier ones are reported with their time, and save "
    "nothing of a step.",
    remedies=(
        "Keep shapes equal from step to step (pad, drop_last=True), or mark what changes: torch.compile(dynamic=True), "
        "torch._dynamo.mark_dynamic.",
        "Keep Python numbers that change (step counters, schedules) out of what is compiled, or make them tensors.",
    ),
    example="The last batch of an epoch has 17 samples: one more compilation of forward and backward.",
    find=_recompiled,
    rank=9,
)


def _breaks(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    counted = (case.about.compiler or {}).get("graph_breaks") or {}
    seen = case.facts.get("compiled") or {}
    resumed = case.per_step(seen.get("resumed", 0))
    if not counted and not resumed:
        return
    gaps = [g for g in case.facts.get("gaps") or [] if g["cause"] in _BETWEEN and g["pass"] != "optimizer"]
    between = list(dict.fromkeys(g["cause"] for g in gaps))
    time = case.unprofiled(case.per_step(sum(g["ns"] for g in gaps)))
    breaks = sum(counted.values()) if counted else resumed
    first_lines = [(count, reason.partition("\n")[0]) for reason, count in counted.items()]
    reasons = "; ".join(f"{count} × {cropped(line)}" for count, line in first_lines[:_MOST_REASONS])
    why = f"Dynamo's reasons: {reasons}. " if reasons else "The trace does not say why: TORCH_LOGS=graph_breaks does. "
    yield rule.finding(
        case,
        f"The graph breaks {number(breaks)} ×: no fusion reaches across a break",
        f"{why}Between graphs no kernel runs in {listed(between)}: {units.text(time, 'ns')}{case.a_step} outside the "
        "optimizer."
        if between
        else f"{why}The profile does not show what runs between graphs.",
        time,
        time,
        count=float(breaks),
        lines=source_lines.named((case.about.compiler or {}).get("break_lines") or []),
    )


BREAKS = Rule(
    name="graph-breaks",
    summary="Dynamo could not keep the model in one graph",
    where=ON_BOTH,
    what="What Dynamo cannot trace (printing, `.item()`, a call into C, data-dependent control flow) ends the graph: "
    "Python runs that line, and another graph follows. Intermediates at the break go through memory.",
    recognised="The breaks that Dynamo counted, with its reasons, of a run with --backend compile. In a trace: "
    "compiled regions inside a compiled region, which is how the code after a break runs.",
    estimate="At most the time that Python and the dispatcher take outside the optimizer, without the profiler's "
    "share. What fusing across the break would save comes on top and is not estimated.",
    remedies=(
        "Take the line out of the model, or let Dynamo trace it: torch.compile(fullgraph=True) names the first one, "
        "TORCH_LOGS=graph_breaks all.",
    ),
    example="`print(x.shape)` in forward → two graphs instead of one.",
    find=_breaks,
    rank=9,
)
RULES = (RECOMPILATION, BREAKS)
