"""What a report on several ranks says first."""

from __future__ import annotations

from perfkit.ranks.results import Part, RanksReport, Straggler
from perfkit.units import text


def sentences(report: RanksReport) -> list[str]:
    """Who is late, why, and what the communication itself takes, in this order."""
    said = [_late(one) for one in report.stragglers] or [
        "No rank is named a straggler: none is late by 2 % of the step in most steps, nor by more in some alone."
    ]
    most = max(report.parts, key=lambda part: part.waiting_ns)
    said.append(_communication(most, report))
    if report.what_ifs:
        best = max(report.what_ifs, key=lambda one: one.saves_ns)
        if best.saves_ns > 0:
            said.append(
                f"The most to gain: {best.name}, at most {text(best.saves_ns, 'ns')} of a step of "
                f"{text(best.step_ns + best.saves_ns, 'ns')} on the mean ({best.how})."
            )
    return said


def _late(one: Straggler) -> str:
    often = "in every step" if one.late_steps == one.steps else f"in {one.late_steps} of {one.steps} steps"
    late = f"Rank {one.rank} is late: the others wait {text(one.late_ns.value, 'ns')} for it"
    late += f" ({text(one.late_ns.low, 'ns')} to {text(one.late_ns.high, 'ns')}), {often}"
    return f"{late}, because {one.causes[0].text}." if one.causes else f"{late}. No cause is seen in its trace."


def _communication(part: Part, report: RanksReport) -> str:
    return (
        f"Rank {part.rank} waits most: {text(part.waiting_ns, 'ns')} of its step of {text(part.step_ns, 'ns')}. "
        f"Transfer itself takes {text(part.transfer_ns, 'ns')} there, of which nothing covers "
        f"{text(part.exposed_ns, 'ns')}."
    )
