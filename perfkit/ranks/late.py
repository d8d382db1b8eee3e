"""Who is late: the ranks that others wait for, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.ranks.matching import Matched
from perfkit.ranks.members import Member
from perfkit.ranks.results import Interval
from perfkit.ranks.waiting import Waiting, per_step
from perfkit.statistics import estimates

WORTH = 0.02  # of the step: what a rank that is always late must delay the others
BURST = 0.10  # of the step: what one that is late now and then must delay them then
_LEAST_NS = 20e3  # alignment and the network's latency are of this order


@dataclass(frozen=True)
class Lateness:
    """Of one member: how late it is in each step, beyond what the others are (ns), and in which steps that counts."""

    ns: np.ndarray
    late: np.ndarray
    named: bool

    @property
    def interval(self) -> Interval:
        """The median over the steps in which it is late; over all steps where it is in none."""
        return interval(self.ns[self.late] if self.named and self.late.any() else self.ns)


def judge(members: Sequence[Member], matched: Matched, waiting: Waiting) -> list[Lateness]:
    """How late each member is, and whether it is named a straggler.

    A rank's lateness in a step is the sum, over the collectives, of how long after the median rank it arrives, less
    what the median of the other ranks has. It is named where the whole interval of the median over steps is above
    `WORTH` of the step, or where in two steps or more it is above `BURST` and five times what it is otherwise.
    """
    steps = members[0].steps
    lag = per_step(waiting.lag, matched.step, steps)
    length = np.median([m.step_ns for m in members], axis=0)
    found = []
    for i in range(len(members)):
        others = np.median(np.delete(lag, i, axis=1), axis=1)
        found.append(_judged(lag[:, i] - others, length))
    return found


def _judged(late: np.ndarray, length: np.ndarray) -> Lateness:
    if not len(late):
        return Lateness(late, np.zeros(0, bool), False)
    typical = float(np.median(length))
    always = interval(late).low > max(WORTH * typical, _LEAST_NS)
    if always:
        return Lateness(late, late > max(WORTH * typical, _LEAST_NS), True)
    usual = float(np.median(np.abs(late)))
    bursts = late > max(BURST * typical, 5 * usual, _LEAST_NS)
    return Lateness(late, bursts, int(bursts.sum()) >= 2)


def interval(values: np.ndarray) -> Interval:
    """The median with its 95 % interval; the range below five values."""
    found = estimates.median([float(v) for v in values])
    return Interval(value=found.value, low=found.low, high=found.high)
