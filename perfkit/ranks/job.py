"""The ranks of one job put together: which belong to it, which collectives are the same, who waits, the clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfkit.ranks import clocks, matching, members, waiting
from perfkit.ranks.matching import Matched
from perfkit.ranks.members import Member
from perfkit.ranks.results import Clock
from perfkit.ranks.waiting import Waiting


@dataclass(frozen=True)
class Job:
    """Ranks by number, cut to the steps that all of them have. `said` are sentences about what is left out."""

    ranks: list[Member]
    matched: Matched
    waiting: Waiting
    clocks: list[Clock]
    said: list[str]


def together(traces: Sequence[Member]) -> Job:
    """The job that `traces` are of.

    Raises `InputError` where they are not two ranks of one job, recorded different steps, or share no collective.
    """
    ranks, unfit = members.belonging(traces)
    ranks, steps = members.same_steps(ranks)
    matched, unmatched = matching.match(ranks)
    matching.require(matched, ranks)
    waits = waiting.divide(ranks, matched)
    return Job(ranks, matched, waits, clocks.align(ranks, matched), [*unfit, *steps, *unmatched])
