"""The headline of a report on several ranks."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.ranks import naming
from perfkit.ranks.results import RanksReport, RankStep, Straggler
from perfkit.units import text

_WORTH = 0.005  # of the step: waiting next to computation is reported from here on


def sentences(report: RanksReport) -> list[str]:
    """Return sentences on late ranks, their causes, and the time of communication itself, in this order."""
    said = [_late(group, len(report.parts)) for group in naming.together(report.stragglers)] or [
        "No rank is named a straggler: none is late by 2 % of the step in most steps, nor by more in some alone."
    ]
    most = max(report.parts, key=lambda part: part.waiting_ns)
    said.append(_communication(most))
    if report.what_ifs:
        best = max(report.what_ifs, key=lambda one: one.saves_ns)
        if best.saves_ns > 0:
            said.append(
                f"The most to gain: {best.name}, at most {text(best.saves_ns, 'ns')} of a step of "
                f"{text(best.step_ns + best.saves_ns, 'ns')} on average ({best.how})."
            )
    return said


def _late(group: Sequence[Straggler], ranks: int) -> str:
    """One straggler, or several for one kind of cause: how late the one that costs most is, and why."""
    one = group[0]
    often = "in every step" if one.late_steps == one.steps else f"in {one.late_steps} of {one.steps} steps"
    often = "in the only step" if one.steps == 1 else often
    interval = f"(median; {text(one.late_ns.low, 'ns')} to {text(one.late_ns.high, 'ns')})"
    interval = "" if one.steps == 1 else f" {interval}"
    why = f", because {one.causes[0].text}." if one.causes else ". No cause is seen in its trace."
    if len(group) == 1:
        late = f"Rank {one.rank} is late by {text(one.late_ns.value, 'ns')}{interval}"
        return f"{late}, {often}{why} {naming.covered(one)}".rstrip()
    those = naming.numbers(sorted(other.rank for other in group))
    return (
        f"{len(group)} of {ranks} ranks are late ({those}). Rank {one.rank}, which costs most, is late by "
        f"{text(one.late_ns.value, 'ns')}{interval}, {often}{why} {_alike(group)} {naming.covered(one)}".rstrip()
    )


def _alike(group: Sequence[Straggler]) -> str:
    least = min(one.late_ns.value for one in group)
    found = "Their causes are of the same kind" if group[0].causes else "None is seen in those of the others either"
    return f"{found}, their delays at least {text(least, 'ns')}."


def _communication(part: RankStep) -> str:
    covered = part.overlapped_ns - (part.transfer_ns - part.exposed_ns)
    more = f", and {text(covered, 'ns')} more that its computation covers" if covered > _WORTH * part.step_ns else ""
    return (
        f"Rank {part.rank} waits most: {text(part.waiting_ns, 'ns')} of its step of {text(part.step_ns, 'ns')}{more}. "
        f"Transfer itself takes {text(part.transfer_ns, 'ns')} there, of which nothing covers "
        f"{text(part.exposed_ns, 'ns')}."
    )
