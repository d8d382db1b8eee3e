"""Which rank of a job to look at in detail: the one whose own work decides how long the step takes."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.ranks.results import RanksReport, RankStep, Straggler


def chosen(parts: Sequence[RankStep], stragglers: Sequence[Straggler]) -> tuple[int, str]:
    """The rank, and why it: the straggler that costs most, else the rank that waits least."""
    if stragglers:
        return stragglers[0].rank, "the others wait for it, and its own steps hold the reason"
    least = min(parts, key=lambda part: (part.waiting_ns, -part.compute_ns))
    return least.rank, "no rank is named late, and this one waits least for the others"


def heading(report: RanksReport) -> str:
    """The heading of the part about one rank; "" where a report has none."""
    return "" if report.detail is None else f"Rank {report.detail_rank} in detail: {report.detail_why}"
