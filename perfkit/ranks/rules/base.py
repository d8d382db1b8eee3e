"""The case that rules of ranks judge, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from perfkit.analysis.line_results import SourceLine
from perfkit.analysis.results import Unjudged
from perfkit.analysis.rules.base import Texts
from perfkit.hardware.collectives.results import CollectiveSweep, sweep_for
from perfkit.intervals import Union
from perfkit.ranks import collectives
from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import RanksFinding, RanksReport
from perfkit.ranks.waiting import Waiting

SEVERAL_GPUS, SEVERAL = "several GPUs", "several ranks"


@dataclass(frozen=True)
class RanksCase:
    """The ranks of one job as a rule sees them. Matrices have a line a matched collective and a column a member.

    `environment` is that of the run folder of the traces; empty elsewhere.
    """

    report: RanksReport
    members: Sequence[RankTable]
    matched: Matched
    waiting: Waiting
    roofs: Sequence[CollectiveSweep] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Steps of the first rank, at least 1: amounts are divided by them."""
        return max(self.members[0].steps, 1)

    @cached_property
    def step_ns(self) -> float:
        """Return the mean step of the slowest rank, as in the what-ifs."""
        return float(np.mean(np.max([m.step_ns for m in self.members], axis=0)))

    @cached_property
    def dtypes(self) -> list[str]:
        """The dtype of each matched collective, "" where unknown."""
        return collectives.dtypes(self.members, self.matched)

    @cached_property
    def computing(self) -> list[Union]:
        """When each member computes, inside its steps."""
        chosen = [m.is_compute & (m.step >= 0) for m in self.members]
        return [Union(m.start[rows], m.end[rows]) for m, rows in zip(self.members, chosen, strict=True)]

    @cached_property
    def span(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of each collective on each member's own clock, ns; NaN where it takes no part."""
        start, end = np.full(self.matched.rows.shape, np.nan), np.full(self.matched.rows.shape, np.nan)
        for i, member in enumerate(self.members):
            here = self.matched.rows[:, i] >= 0
            start[here, i] = member.start[self.matched.rows[here, i]]
            end[here, i] = member.end[self.matched.rows[here, i]]
        return start, end

    @cached_property
    def exposed(self) -> np.ndarray:
        """Return the part of each collective's transfer (without waiting) that no computation covers, ns."""
        start, end = self.span
        begin = start + np.nan_to_num(self.waiting.wait)
        found = np.full(begin.shape, np.nan)
        for i, union in enumerate(self.computing):
            here = self.matched.rows[:, i] >= 0
            covered = union.until(end[here, i]) - union.until(begin[here, i])
            found[here, i] = (end - begin)[here, i] - covered
        return found

    def most(self, values: np.ndarray) -> tuple[float, int]:
        """The largest column sum of a matrix, ns a step, and its column."""
        sums = np.nansum(values, axis=0) / self.steps
        return float(sums.max()), int(sums.argmax())

    def column(self, name: str, k: int) -> str:
        """Return the text of a collective in a column of the table; "" if no member has one."""
        for member, row in zip(self.members, self.matched.rows[k].tolist(), strict=True):
            value = member.frame[name].iloc[row] if row >= 0 else None
            if isinstance(value, str):
                return value
        return ""

    def group_size(self, k: int) -> int:
        """Return the size of a collective's group; the number of ranks here if unknown."""
        return collectives.group_size(self.matched.group[k]) or int((self.matched.rows[k] >= 0).sum())

    def sweep(self, k: int) -> CollectiveSweep | None:
        """Return the sweep of a collective's operation between as many ranks."""
        return sweep_for(self.roofs, self.matched.operation[k], self.group_size(k))


@dataclass(frozen=True, kw_only=True)
class RanksRule(Texts):
    """A named rule about several ranks; `find` answers for a case."""

    find: Callable[[RanksRule, RanksCase], Iterable[RanksFinding | Unjudged]]

    def finding(
        self,
        case: RanksCase,
        title: str,
        evidence: str,
        time_ns: float,
        saving_ns: float,
        ranks: Sequence[int] = (),
        between: tuple[float, float] | None = None,
        count: float = 0.0,
        lines: Sequence[SourceLine] = (),
    ) -> RanksFinding:
        """A finding of this rule; times are ns a step, `between` the interval of the saving."""
        saving_ns = max(0.0, min(saving_ns, case.step_ns))
        low, high = between or (None, None)
        return RanksFinding(
            name=self.name, title=title, evidence=evidence, remedy=self.remedy, time_ns=time_ns, saving_ns=saving_ns,
            share=saving_ns / case.step_ns if case.step_ns else 0.0, count=count, ranks=list(ranks),
            saving_low_ns=low, saving_high_ns=high, lines=list(lines),
        )  # fmt: skip
