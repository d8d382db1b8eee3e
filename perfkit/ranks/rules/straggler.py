"""A rank that the others wait for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfkit.analysis import source_lines
from perfkit.analysis.line_results import SourceLine
from perfkit.analysis.words import capital
from perfkit.ranks import naming
from perfkit.ranks.results import EQUAL_RANKS, RanksFinding, Straggler
from perfkit.ranks.rules.base import SEVERAL, RanksCase, RanksRule
from perfkit.units import text


def _late(rule: RanksRule, case: RanksCase) -> Iterator[RanksFinding]:
    for group in naming.together(case.report.stragglers):
        yield _one(rule, case, group[0]) if len(group) == 1 else _several(rule, case, group)


def _one(rule: RanksRule, case: RanksCase, late: Straggler) -> RanksFinding:
    often = _often(late)
    low, high = (max(ns, 0.0) * often for ns in (late.exposed_ns.low, late.exposed_ns.high))
    title = f"Rank {late.rank} is late by {text(late.late_ns.value, 'ns')} in {_steps(late)}"
    evidence = f"{capital(_why(late))} {_between(late)}"
    return rule.finding(
        case, title, evidence, _takes(late), _saves(late), ranks=[late.rank], between=(low, high), count=often,
        lines=_lines(case, late.rank),
    )  # fmt: skip


def _lines(case: RanksCase, rank: int) -> list[SourceLine]:
    """The lines in which the late rank's host is longer than that of the others."""
    late = [member for member in case.members if member.rank == rank]
    others = [(member.facts, member.steps) for member in case.members if member.rank != rank]
    return source_lines.longer(late[0].facts, late[0].steps, others) if late else []


def _several(rule: RanksRule, case: RanksCase, group: Sequence[Straggler]) -> RanksFinding:
    """Fixing all saves no more than their delays together, nor more than equal ranks would."""
    most = group[0]
    equal = next((what_if.saves_ns for what_if in case.report.what_ifs if what_if.name == EQUAL_RANKS), math.inf)
    delays = [_takes(one) for one in group]
    # Not the sum of what each saves alone: computation that covers one delay on a rank leaves others bare there.
    saving = min(sum(delays), equal)
    title = (
        f"{len(group)} of {len(case.report.parts)} ranks are late, rank {most.rank}, which costs most, by "
        f"{text(most.late_ns.value, 'ns')} in {_steps(most)}"
    )
    why = capital(f"Rank {most.rank}: {_why(most)}")
    evidence = f"{why} {_between(most)} Fixing one rank saves nothing where another is as late in the same step."
    return rule.finding(
        case, title, evidence, max(saving, *delays), saving, ranks=sorted(one.rank for one in group), count=_often(most)
    )


def _often(late: Straggler) -> float:
    return late.late_steps / max(late.steps, 1)


def _takes(late: Straggler) -> float:
    """Return its delay, ns of the mean step."""
    return max(late.mean_ns, 0.0) * _often(late)


def _saves(late: Straggler) -> float:
    """Return the part of that which lengthens the step."""
    return max(late.exposed_ns.value, 0.0) * _often(late)


def _steps(late: Straggler) -> str:
    return "every step" if late.late_steps == late.steps else f"{late.late_steps} of {late.steps} steps"


def _why(late: Straggler) -> str:
    return "; ".join(cause.text for cause in late.causes) or "no cause is seen in its trace"


def _between(late: Straggler) -> str:
    low, high = (text(ns, "ns") for ns in (late.late_ns.low, late.late_ns.high))
    return f"The delay is between {low} and {high} in those steps. {naming.covered(late)}".rstrip()


RULES = (
    RanksRule(
        name="straggler",
        summary="the other ranks wait for one that is late",
        where=SEVERAL,
        what="A collective ends on no rank before the last one has arrived: the step of all is that of the latest.",
        recognised="How long after the median rank it arrives at the collectives of a step, beyond what the others do "
        "and beyond what it was late by at the one before (computation goes on while a bucket waits): the interval of "
        "the median over steps above 2 % of the step and above 0.5 ms; or bursts of 10 % of the step, more of them "
        "than chance gives a rank; or two bursts of half a step more than the other ranks have.",
        estimate="What of that delay no computation of the waiting ranks covers, what of transfers it would cover if "
        "they came earlier, and what the same kernels take longer there while a collective waits, as if nothing else "
        "were late: the mean, with its 95 % interval over the steps; for ranks reported together all their delays, at "
        "most what equal ranks would save.",
        remedies=(
            "Fix what the evidence names: a host that launches late (its Python, its data loader, cores that it "
            "shares), a GPU of a lower clock, or more work than the others have (shapes, samples, layers).",
        ),
        example="Rank 0 alone writes a log or a checkpoint in every step.",
        find=_late,
        rank=1,
    ),
)
