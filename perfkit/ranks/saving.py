"""Bounds on what equal ranks save: waiting that no computation covers, and what waiting slows computation down by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfkit.intervals import Union
from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.waiting import Waiting, per_step

if TYPE_CHECKING:
    import pandas as pd


class Savings:
    """The members' bounds. Ranks go in step, so that all of them together save what the one that saves least does.

    A rank saves its own delay where it is a late one. Where it is not, it saves what it waits while it neither computes
    nor transfers, what of a transfer its computation would cover if that came earlier, and what its kernels take longer
    than those of the late rank while it waits (a waiting collective holds multiprocessors).
    """

    def __init__(self, members: Sequence[RankTable], matched: Matched, waiting: Waiting) -> None:
        self._members, self._matched, self._waiting = members, matched, waiting
        self._latest = np.nan_to_num(waiting.lag).max(axis=1) if len(matched) else np.zeros(0)
        self._of_kernels: dict[int, pd.DataFrame] = {}
        spans = [_working(member, i, matched, waiting) for i, member in enumerate(members)]
        self._computing, self._working = zip(*spans, strict=True)

    def of_rank(self, column: int) -> np.ndarray:
        """Return the most that each member saves in each step, ns: (steps, members), if it came with the median."""
        of = self._waiting
        lag, late, delay = (np.nan_to_num(values[:, column]) for values in (of.lag, of.late, of.delay))
        return self._without(lag, late, delay, column)

    def of_all(self) -> float:
        """Return the most that the mean step saves, ns, if no rank came to a collective later than the median one.

        Steps of which no collective is known on all ranks are left out.
        """
        late, delay = (np.nan_to_num(values).max(axis=1) for values in (self._waiting.late, self._waiting.delay))
        latest = int(np.nansum(self._waiting.lag, axis=0).argmax())
        saved = self._without(self._latest, late, delay, latest)[np.unique(self._matched.step)]
        return float(saved.mean(axis=0).min()) if len(saved) else 0.0

    def _without(self, lag: np.ndarray, late: np.ndarray, delay: np.ndarray, column: int) -> np.ndarray:
        """Return the saving where each collective comes `lag` ns sooner after its median rank, mostly by one member."""
        of = self._waiting.delay
        # How long one that takes no part waits elsewhere for those that do is not known: all of it may be saved.
        own = np.where(np.isnan(of), delay[:, None], np.fmin(of, delay[:, None]))
        steps = self._members[0].steps
        others = [self._of_member(i, lag, late, steps, column) for i in range(len(self._members))]
        return per_step(own, self._matched.step, steps) + np.array(others).T

    def _of_member(self, column: int, lag: np.ndarray, late: np.ndarray, steps: int, of: int) -> np.ndarray:
        """Return what a member saves of others' delays, ns in each step; `of` is the member that is late most.

        No more than the waiting during which it worked is due to that waiting.
        """
        here = np.flatnonzero((self._matched.rows[:, column] >= 0) & (lag > 0))
        rows, wait, latest = self._matched.rows[here, column], self._waiting.wait[here, column], self._latest[here]
        arrival = self._members[column].start[rows] + wait  # of the last rank
        end = self._members[column].end[rows]
        # It waits for the delay from when the median rank came, or itself if later, until the delayed one came.
        begin, until = arrival - np.minimum(wait, latest), arrival - (latest - lag[here])
        found, step, slowed = np.zeros(steps), self._matched.step[here], self._slowed(column, of, steps)
        earlier = np.minimum(late[here], np.where(wait > 0, np.inf, 0.0))  # the late one's own transfers stay
        for i in range(steps):
            one = step == i
            waits = Union(begin[one], np.maximum(begin, until)[one])
            covered = waits.inside(self._working[column])
            exposed, least = self._exposed(column, arrival[one], end[one], earlier[one])
            found[i] = waits.length - covered + min(covered, slowed[i]) + max(exposed - least, 0.0)
        return found

    def _exposed(self, column: int, begin: np.ndarray, end: np.ndarray, earlier: np.ndarray) -> tuple[float, float]:
        """Return how much of these transfers no computation covers, as they are and so much earlier, ns."""
        now, then = Union(begin, end), Union(begin - earlier, end - earlier)
        computing = self._computing[column]
        return now.length - now.inside(computing), then.length - then.inside(computing)

    def _slowed(self, column: int, late: int, steps: int) -> np.ndarray:
        """Return by how much a member's kernels take longer than the same ones of rank `late`, ns in each step."""
        if column == late:
            return np.zeros(steps)
        own, other = self._kernels(column), self._kernels(late)
        both = own.merge(other, left_index=True, right_index=True, suffixes=("", "_late"))
        same = both[both["count"] == both["count_late"]]
        longer = (same["sum"] - same["sum_late"]).groupby("step").sum()
        return longer.reindex(range(steps), fill_value=0.0).clip(lower=0.0).to_numpy(float)

    def _kernels(self, column: int) -> pd.DataFrame:
        """Time and number of a member's computing kernels by step, name and shapes."""
        if column not in self._of_kernels:
            member = self._members[column]
            part = member.frame.loc[member.is_compute, ["step", "short_name", "shapes", "duration_ns"]]
            part = part.astype({"step": float, "short_name": str, "shapes": str, "duration_ns": float})
            times = part.groupby(["step", "short_name", "shapes"])["duration_ns"]
            self._of_kernels[column] = times.agg(["sum", "count"])
        return self._of_kernels[column]


def _working(member: RankTable, column: int, matched: Matched, waiting: Waiting) -> tuple[Union, Union]:
    """When a member computes, and when it computes or transfers, inside its steps, on its own clock."""
    start = member.start.copy()
    here = matched.rows[:, column] >= 0
    start[matched.rows[here, column]] += np.nan_to_num(waiting.wait[here, column])
    inside = member.step >= 0
    rows = [member.is_compute & inside, (member.is_collective | member.is_compute) & inside]
    computing, working = (Union(start[one], member.end[one]) for one in rows)
    return computing, working
