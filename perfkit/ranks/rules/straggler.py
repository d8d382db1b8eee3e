"""A rank that the others wait for."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.analysis.words import capital
from perfkit.ranks import naming
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import SEVERAL, RanksCase, RanksRule
from perfkit.units import text


def _late(rule: RanksRule, case: RanksCase) -> Iterator[RanksFinding]:
    for group in naming.together(case.report.stragglers):
        one, several = group[0], len(group) > 1
        often = one.late_steps / max(one.steps, 1)
        steps = "every step" if often == 1 else f"{one.late_steps} of {one.steps} steps"
        those = f"{len(group)} of {len(case.report.parts)} ranks" if several else f"rank {one.rank}"
        why = "; ".join(cause.text for cause in one.causes) or "no cause is seen in its trace"
        low, value, high = (max(ns, 0.0) * often for ns in (one.late_ns.low, one.late_ns.value, one.late_ns.high))
        evidence = [
            capital(f"Rank {one.rank} is the latest: {why}" if several else why),
            f"The delay lies between {text(one.late_ns.low, 'ns')} and {text(one.late_ns.high, 'ns')} in those steps.",
            *(["It goes only where all of these ranks are mended."] if several else []),
        ]
        yield rule.finding(
            case,
            f"The others wait {text(one.late_ns.value, 'ns')} for {those} in {steps}",
            " ".join(evidence),
            value,
            value,
            ranks=sorted(other.rank for other in group),
            between=(low, high),
            count=often,
        )


RULES = (
    RanksRule(
        name="straggler",
        summary="the other ranks wait for one that is late",
        where=SEVERAL,
        what="A collective ends on no rank before the last one has arrived: the step of all is that of the latest.",
        recognised="How long after the median rank it arrives at the collectives of a step, beyond what the others do: "
        "the interval of the median over steps above 2 % of the step and above 0.5 ms; or bursts of 10 % of the step, "
        "more of them than chance gives a rank; or two bursts of half a step more than the other ranks have.",
        estimate="That delay, as if nothing else were late. With its 95 % interval over the steps.",
        remedies=(
            "Mend what the evidence names: a host that launches late (its Python, its data loader, cores that it "
            "shares), a GPU of a lower clock, or more work than the others have (shapes, samples, layers).",
        ),
        example="Rank 0 alone writes a log or a checkpoint in every step.",
        find=_late,
    ),
)
