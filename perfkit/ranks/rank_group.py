"""The ranks of one job put together: which belong to it, which collectives are the same, who waits, the clocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.errors import InputError
from perfkit.ranks import clocks, matching, rank_table, waiting
from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import RankClock
from perfkit.ranks.waiting import Waiting
from perfkit.units import text


@dataclass(frozen=True)
class RankGroup:
    """Ranks by number, cut to the steps that all of them have. `said` are sentences about what is left out."""

    ranks: list[RankTable]
    matched: Matched
    waiting: Waiting
    clocks: list[RankClock]
    said: list[str]


def together(traces: Sequence[RankTable], one_host: bool = False) -> RankGroup:
    """The job that `traces` are of. On `one_host` the clock says which steps are the same, whatever their numbers.

    Raises `InputError` where they are not two ranks of one job, recorded different steps, or share no collective.
    """
    ranks, unfit = rank_table.belonging(traces)
    try:
        found = _of_steps(ranks, unfit)
    except rank_table.OtherSteps:
        return _by_order(ranks, unfit)
    if not one_host or not any(apart := _steps_apart(found)):
        return found
    _require_shared(found, apart)
    return _of_steps([_counted_on(member, by) for member, by in zip(ranks, apart, strict=True)], unfit)


def _by_order(ranks: Sequence[RankTable], unfit: Sequence[str]) -> RankGroup:
    """The job of ranks that number their steps differently, where the clocks say that they are the same.

    Raises `OtherSteps` where they are not.
    """
    if len({member.steps for member in ranks}) == 1:
        found = _of_steps([_counted_on(member, 0) for member in ranks], unfit)
        if not any(_steps_apart(found)):
            found.said.append("The ranks number their steps differently: they are the same by the clocks.")
            return found
    raise rank_table.other_steps(ranks)


def _of_steps(ranks: Sequence[RankTable], unfit: Sequence[str]) -> RankGroup:
    """The job of ranks whose steps of one name are the same."""
    ranks, steps = rank_table.same_steps(ranks)
    matched, unmatched = matching.match(ranks)
    matching.require(matched, ranks)
    aligned = clocks.align(ranks, matched)
    return RankGroup(ranks, matched, waiting.divide(ranks, matched, aligned), aligned, [*unfit, *steps, *unmatched])


def _steps_apart(job: RankGroup) -> list[int]:
    """Return the number of steps by which each rank's recording began after the first one's, by the host's clock."""
    length = float(np.median([m.step_ns for m in job.ranks]))
    return [round((clock.offset_ns or 0.0) / length) if length else 0 for clock in job.clocks]


def _require_shared(job: RankGroup, apart: Sequence[int]) -> None:
    """Raise `InputError` where a rank recorded none of the steps that the others did."""
    for member, clock, by in zip(job.ranks, job.clocks, apart, strict=True):
        if by - min(apart) >= min(m.steps for m in job.ranks):
            later = text(abs(clock.offset_ns or 0.0), "ns")
            way = "after" if (clock.offset_ns or 0.0) > 0 else "before"
            raise InputError(
                f"The ranks recorded different steps: those of rank {member.rank} lie {later} {way} rank "
                f"{job.ranks[0].rank}'s.",
                "Record more steps, or let every rank take the same number of steps before them.",
            )


def _counted_on(member: RankTable, by: int) -> RankTable:
    """The member with its steps numbered from `by` on."""
    names = [str(number + by) for number in range(member.steps)]
    return dataclasses.replace(member, facts={**member.facts, "step_names": names})
