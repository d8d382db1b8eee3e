"""Bounds on what equal ranks save: only waiting that no computation covers can be saved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit.intervals import Union
from perfkit.ranks.matching import Matched
from perfkit.ranks.members import Member
from perfkit.ranks.waiting import Waiting, per_step


class Savings:
    """The members' bounds. Ranks go in step, so that all of them together save what the one that saves least does.

    A rank saves what it waits while it neither computes nor transfers, and its own delay where it is a late one.
    """

    def __init__(self, members: Sequence[Member], matched: Matched, waiting: Waiting) -> None:
        self._members, self._matched, self._waiting = members, matched, waiting
        self._latest = np.nan_to_num(waiting.lag).max(axis=1) if len(matched) else np.zeros(0)
        self._working = [_working(member, i, matched, waiting) for i, member in enumerate(members)]

    def of_rank(self, column: int) -> np.ndarray:
        """Return the most that each member saves in each step, ns: (steps, members), if it came with the median."""
        return self._without(np.nan_to_num(self._waiting.lag[:, column]))

    def of_all(self) -> float:
        """Return the most that the mean step saves, ns, if no rank came to a collective later than the median one."""
        saved = self._without(self._latest)
        return float(saved.mean(axis=0).min()) if len(saved) else 0.0

    def _without(self, delay: np.ndarray) -> np.ndarray:
        """The same where each collective comes `delay` ns less after its median rank."""
        lag = self._waiting.lag
        # How long one that takes no part waits elsewhere for those that do is not known: all of it may be saved.
        own = np.where(np.isnan(lag), delay[:, None], np.fmin(lag, delay[:, None]))
        steps = self._members[0].steps
        bare = [self._bare(i, delay, steps) for i in range(len(self._members))]
        return per_step(own, self._matched.step, steps) + np.array(bare).T

    def _bare(self, column: int, delay: np.ndarray, steps: int) -> np.ndarray:
        """Return a member's waiting for these delays while it does no work, ns in each step."""
        here = np.flatnonzero((self._matched.rows[:, column] >= 0) & (delay > 0))
        wait, latest = self._waiting.wait[here, column], self._latest[here]
        arrival = self._members[column].start[self._matched.rows[here, column]] + wait  # of the last rank
        # It waits for the delay from when the median rank came, or itself if later, until the delayed one came.
        begin, end = arrival - np.minimum(wait, latest), arrival - (latest - delay[here])
        end = np.maximum(begin, end)
        found, step = np.zeros(steps), self._matched.step[here]
        for i in range(steps):
            waits = Union(begin[step == i], end[step == i])
            found[i] = waits.length - waits.inside(self._working[column])
        return found


def _working(member: Member, column: int, matched: Matched, waiting: Waiting) -> Union:
    """When a member computes or transfers, inside its steps, on its own clock."""
    start = member.start.copy()
    here = matched.rows[:, column] >= 0
    start[matched.rows[here, column]] += np.nan_to_num(waiting.wait[here, column])
    rows = (member.is_collective | member.is_compute) & (member.step >= 0)
    return Union(start[rows], member.end[rows])
