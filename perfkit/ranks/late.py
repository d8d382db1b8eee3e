"""Late ranks: those that others wait for, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import StepInterval
from perfkit.ranks.waiting import Waiting, per_step
from perfkit.statistics import estimates

WORTH = 0.02  # of the step: what a rank that is always late must delay the others
BURST = 0.10  # of the step: what one that is late now and then must delay them then
LARGE = 0.50  # of the step: a longer burst than those of a machine that profiles
CHANCE = 0.05  # that bursts which fall on ranks by chance name one
# The least difference a step between hosts of equal ranks while a profiler records them (seen on two H100: 0.2 ms).
LEAST_NS = 0.5e6


@dataclass(frozen=True)
class Lateness:
    """The delay of one member in each step, beyond that of the others (ns), and the steps in which it counts.

    The delay is NaN in a step of which no collective is known on all ranks.
    """

    ns: np.ndarray
    late: np.ndarray
    named: bool

    @property
    def interval(self) -> StepInterval:
        """The median over the steps in which it is late; over all steps where it is in none."""
        return interval(self.ns[self.late if self.named and self.late.any() else np.isfinite(self.ns)])

    @property
    def total_ns(self) -> float:
        """Its delay of the others over all steps in which it is late."""
        return self.interval.value * float(self.late.sum())


def judge(members: Sequence[RankTable], matched: Matched, waiting: Waiting) -> list[Lateness]:
    """How late each member is, and whether it is named a straggler.

    A rank's lateness in a step is the sum, over the collectives, of how much longer after the median rank it
    arrives than it was late before, less what the median of the other ranks has; how long its profiler worked for
    itself is taken off, for that is not the program's. It is named where the whole interval of the median over
    steps is above `WORTH` of the step; or where it is late in bursts, above `BURST` and five times what it is
    otherwise, more often than if bursts fell on ranks by chance; or where bursts above `LARGE` are at least two
    more than the median of the others has. Where it is late always and has bursts as well, the larger sum is
    reported.
    """
    steps = members[0].steps
    lag = np.maximum(per_step(waiting.delay, matched.step, steps) - _of_profiler(members, steps), 0.0)
    lag[np.setdiff1d(np.arange(steps), matched.step)] = np.nan
    length = float(np.median([m.step_ns for m in members])) if steps else 0.0
    late = [lag[:, i] - np.median(np.delete(lag, i, axis=1), axis=1) for i in range(len(members))]
    bursts = [_bursts(one, BURST * length) for one in late]
    often = _more_often(bursts) | _two_more([_bursts(one, LARGE * length) for one in late])
    found = []
    for i, one in enumerate(late):
        least = max(WORTH * length, LEAST_NS)
        always = Lateness(one, one > least, bool(steps) and interval(one[np.isfinite(one)]).low > least)
        sometimes = Lateness(one, bursts[i], bool(often[i]))
        more = sometimes.named and sometimes.total_ns > always.total_ns
        found.append(always if always.named and not more else sometimes)
    return found


def _of_profiler(members: Sequence[RankTable], steps: int) -> np.ndarray:
    """Return the time of each member's own profiler, ns: (steps, members); 0 if unknown."""
    profiled = [[float(one.get("profiler_ns") or 0.0) for one in m.facts["per_step"]] for m in members]
    return np.array(profiled).reshape(len(members), steps).T


def _bursts(late: np.ndarray, least: float) -> np.ndarray:
    """Return the steps in which a rank is later than `least`, and far later than in its other steps."""
    usual = float(np.nanquantile(np.abs(late), 0.25)) if len(late) else 0.0  # half of the steps may have a burst
    return late > max(least, 5 * usual, LEAST_NS)


def _more_often(bursts: Sequence[np.ndarray]) -> np.ndarray:
    """Which ranks have more of all bursts than each of them falling on any rank alike explains (binomial tail)."""
    count = [int(one.sum()) for one in bursts]
    total, share = sum(count), 1 / len(count)
    tails = [
        sum(comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(mine, total + 1)) for mine in count
    ]
    return np.array(tails) < CHANCE * share


def _two_more(bursts: Sequence[np.ndarray]) -> np.ndarray:
    """Which ranks have at least two bursts more than the median of the others."""
    count = np.array([int(one.sum()) for one in bursts])
    return np.array([count[i] >= 2 + np.median(np.delete(count, i)) for i in range(len(count))])


def interval(values: np.ndarray) -> StepInterval:
    """Return the median with its 95 % interval; the range below five values."""
    return _of(estimates.median([float(v) for v in values]))


def mean(values: np.ndarray) -> StepInterval:
    """Return the mean with its 95 % interval."""
    return _of(estimates.mean([float(v) for v in values]))


def _of(found: estimates.Estimate) -> StepInterval:
    return StepInterval(value=found.value, low=found.low, high=found.high)
