"""Number of launches of a comparison: as many as planned, fewer where the verdict is clear, more for a precision.

Launches may end after `EARLY` of them, and end after the last that is planned: two looks. Each has its share of the
error, the shares sum to 1, and p values and intervals of a look are those of its share (`statistics.verdicts.judge`).
Whatever decides between the looks, both together then call equal sides different no more often than the whole error:
P(either) ≤ P(first) + P(second). Nothing has to be known of how the looks depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfkit.compare.record import Launch
from perfkit.statistics import ranks
from perfkit.statistics.corrections import holm
from perfkit.statistics.estimates import LEVEL
from perfkit.statistics.verdicts import ALONE

# One launch that contradicts all others leaves p at 0.00071 of twenty, enough for ten tests with the last look's share.
FIRST_LAUNCHES = 20
EARLY = 8  # the fewest launches whose least p, 1/128, is a verdict at `EARLY_SHARE` of 2 %
EARLY_SHARE = 0.4
FAR = 0.05  # from equal: of a step that is nearer the parts are of interest, and they need all launches


@dataclass(frozen=True)
class Plan:
    """Amount of measurement. With a `precision` (a share) launches go on until every ratio to the first side is known
    to that, plus or minus, or `time_limit` (seconds) is over. That rule looks at the interval's width alone, never at
    whether it leaves out 1: it favours no verdict."""

    launches: int = FIRST_LAUNCHES
    precision: float | None = None
    time_limit: float = 1800.0
    early: int = EARLY  # launches after which a clear verdict ends it; 0 for never
    rounds: int = 2
    turn_seconds: float = 0.15
    warmup_seconds: float = 3.0
    profiled_steps: int = 4
    seed: int = 0

    def share(self, launches: int) -> float:
        """Return the part of the error that verdicts after `launches` may spend: all of it with one look."""
        if not self.looks_early:
            return 1.0
        return EARLY_SHARE if launches <= self.early else 1 - EARLY_SHARE

    def for_sides(self, sides: int) -> Plan:
        """Return the plan for `sides` sides: each doubling of the pairs that Holm corrects for takes one launch more,
        which halves the least p, before the first look can show anything."""
        more = math.ceil(math.log2(max(1, sides - 1)))
        return replace(self, early=self.early + more) if self.early else self

    @property
    def looks_early(self) -> bool:
        """Return whether there is a look before the last: where it saves half of the launches or more."""
        return self.precision is None and 0 < self.early <= self.launches / 2

    def until_look(self, launches: int) -> int:
        """Return the number of launches until the next look, at least one."""
        ends = [self.early, self.launches] if self.looks_early else [self.launches]
        return next((end - launches for end in ends if end > launches), 1)


def why(launches: Sequence[Launch], sides: int, plan: Plan, seconds: float) -> str:
    """Why to stop now; "" to go on."""
    n = len(launches)
    if plan.precision is None and n >= plan.launches:
        return f"{n} launches, as planned"
    if plan.looks_early and n == plan.early and clear(launches, sides, plan.share(n)):
        return f"every step's verdict stood after {n} launches"
    if plan.precision is not None and n >= plan.launches and reached(launches, sides, plan.precision):
        return f"the precision of {plan.precision:.2%} was reached after {n} launches"
    if seconds * (n + 1) / n > plan.time_limit:
        return f"the time limit of {plan.time_limit:.0f} s ended it after {n} launches"
    return ""


def clear(launches: Sequence[Launch], sides: int, share: float) -> bool:
    """Return whether every side's step differs from the first's, after Holm's correction, and is `FAR` from it for
    certain."""
    shifts = [ranks.paired(one, 1 - (1 - LEVEL) * share) for one in _log_ratios(launches, sides)]
    adjusted = holm([min(1.0, shift.p / share) for shift in shifts])
    far = math.log1p(FAR)
    return bool(shifts) and all(
        p <= ALONE and (shift.low > far or shift.high < -far) for p, shift in zip(adjusted, shifts, strict=True)
    )


def reached(launches: Sequence[Launch], sides: int, precision: float) -> bool:
    """Return whether half the interval of every side's ratio to the first is at most `precision`."""
    return all(ranks.paired(one).half <= precision for one in _log_ratios(launches, sides))


def _log_ratios(launches: Sequence[Launch], sides: int) -> list[list[float]]:
    """The log ratio of each launch to the first side, by side."""
    logs = np.log([[_centre(launch, side) for launch in launches] for side in range(sides)])
    return [list(logs[side] - logs[0]) for side in range(1, sides)]


def _centre(launch: Launch, side: int) -> float:
    return float(np.median([ns for turn in launch.turns if turn.side == side for ns in turn.samples_ns]))
