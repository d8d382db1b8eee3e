"""Number of launches of a comparison: as many as planned, fewer where the verdict is clear, more for a precision.

Launches may end after `EARLY` of them, after `MORE` more, and end after the last that is planned: three looks. Each has
its share of the error, the shares sum to 1, and p values and intervals of a look are those of its share
(`statistics.verdicts.judge`). Whatever decides between the looks, all together then call equal sides different no more
often than the whole error: P(any) ≤ P(first) + P(second) + P(last). Nothing has to be known of how they depend on
each other.

A look ends it in two cases: every step is `FAR` from the first side's for certain; or steps and parts are `settled`, so
that more launches would hardly change a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfkit.compare import settled
from perfkit.compare.record import RecordedLaunch
from perfkit.statistics import ranks
from perfkit.statistics.corrections import holm
from perfkit.statistics.estimates import LEVEL
from perfkit.statistics.verdicts import ALONE, RESOLUTION

# One launch that contradicts all others leaves p at 0.00071 of twenty, enough for ten tests with the last look's share.
FIRST_LAUNCHES = 20
EARLY = 8  # the fewest launches whose least p, 1/128, is a verdict at its share of 2 %
# The least p of twelve, 1/2048, leaves room for eight families of equal times next to one that differs.
MORE = 4
SHARES = (0.40, 0.24, 0.36)
FAR = 0.05  # from equal: of a step that is nearer the parts are of interest, and they may need more launches


_FAR = math.log1p(FAR)


@dataclass(frozen=True)
class StoppingRule:
    """Amount of measurement. With a `precision` (a share) launches go on until every ratio to the first side is known
    to that, plus or minus, or `time_limit` (seconds) is over. That rule looks at the interval's width alone, never at
    whether it leaves out 1: it favours no verdict."""

    launches: int = FIRST_LAUNCHES
    precision: float | None = None
    time_limit: float = 1800.0
    early: int = EARLY  # launches after which a clear verdict ends it; 0 for never
    resolution: float = RESOLUTION  # how near equal steps must be known to be, so that they end it
    rounds: int = 2
    turn_seconds: float = 0.15
    warmup_seconds: float = 3.0
    profiled_steps: int = 4
    seed: int = 0

    def share(self, launches: int) -> float:
        """Return the part of the error that verdicts after `launches` may spend: all of it with one look."""
        looks = self.looks()
        return SHARES[sum(launches > look for look in looks)] if looks else 1.0

    def for_sides(self, sides: int) -> StoppingRule:
        """Return the plan for `sides` sides: each doubling of the pairs that Holm corrects for takes one launch more,
        which halves the least p, before the first look can show anything."""
        more = math.ceil(math.log2(max(1, sides - 1)))
        return replace(self, early=self.early + more) if self.early else self

    def looks(self) -> list[int]:
        """Return the numbers of launches at which there is a look before the last: where the first look saves half of
        them or more."""
        looks = [self.early, self.early + MORE]
        early = self.precision is None and 0 < self.early <= self.launches / 2 and looks[-1] < self.launches
        return looks if early else []

    def until_look(self, launches: int) -> int:
        """Return the number of launches until the next look, at least one."""
        return next((end - launches for end in (*self.looks(), self.launches) if end > launches), 1)


def why(
    launches: Sequence[RecordedLaunch],
    sides: int,
    plan: StoppingRule,
    seconds: float,
    parts: settled.Parts | None = None,
) -> str:
    """Return why to stop now; "" to go on. Without `parts`, steps near each other do not stop it."""
    n = len(launches)
    if plan.precision is None and n >= plan.launches:
        return f"{n} launches, as planned"
    if n in plan.looks() and (found := _at_look(launches, sides, plan, parts)):
        return f"{found} after {n} launches"
    if plan.precision is not None and n >= plan.launches and reached(launches, sides, plan.precision):
        return f"the precision of {plan.precision:.2%} was reached after {n} launches"
    if seconds * (n + 1) / n > plan.time_limit:
        return f"the time limit of {plan.time_limit:.0f} s ended it after {n} launches"
    return ""


def _at_look(launches: Sequence[RecordedLaunch], sides: int, plan: StoppingRule, parts: settled.Parts | None) -> str:
    """Return the reason to end at this look; "" to go on."""
    share = plan.share(len(launches))
    shifts = [ranks.paired(one, 1 - (1 - LEVEL) * share) for one in _log_ratios(launches, sides)]
    adjusted = holm([min(1.0, shift.p / share) for shift in shifts])
    tests = list(zip(shifts, adjusted, strict=True))
    far = [p <= ALONE and (shift.low > _FAR or shift.high < -_FAR) for shift, p in tests]
    if tests and all(far):
        return "every step's verdict stood"
    near = [test for test, beyond in zip(tests, far, strict=True) if not beyond]
    if parts is None or not near or not all(settled.step(*test, plan.resolution) for test in near):
        return ""
    of_near = [found for found, beyond in zip(parts(), far, strict=True) if not beyond]
    return "every verdict stood, of steps and parts," if all(map(settled.parts, of_near)) else ""


def reached(launches: Sequence[RecordedLaunch], sides: int, precision: float) -> bool:
    """Return whether half the interval of every side's ratio to the first is at most `precision`."""
    return all(ranks.paired(one).half <= precision for one in _log_ratios(launches, sides))


def _log_ratios(launches: Sequence[RecordedLaunch], sides: int) -> list[list[float]]:
    """The log ratio of each launch to the first side, by side."""
    logs = np.log([[_centre(launch, side) for launch in launches] for side in range(sides)])
    return [list(logs[side] - logs[0]) for side in range(1, sides)]


def _centre(launch: RecordedLaunch, side: int) -> float:
    return float(np.median([ns for turn in launch.turns if turn.side == side for ns in turn.samples_ns]))
