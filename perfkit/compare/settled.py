"""Which tests of a comparison more launches would hardly change: then it may end at a look before the last.

    decided     the verdict is better or worse, after all corrections and with the look's share of the error
    quiet       p, before corrections, is above a limit (`QUIET_STEP`, `QUIET_PART`): nothing hints at a difference
    step        decided; or quiet, and the verdict is that no difference is shown: one of `resolution` would have been
    part        decided or quiet, of passes, families and memory; what cannot be tested now cannot be later either

Ending where all are settled calls nothing different that the look's share of the error does not allow. What it costs is
power, for effects that only the last look would have shown: `tests/compare/test_settled.py` has how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from perfkit.compare.record import MeasuredSide, Measurement, RecordedLaunch
from perfkit.statistics import ranks
from perfkit.statistics.verdicts import ALONE, BETTER, WORSE, Judgement

# A step that differs by as much as twenty launches would show has a p above 0.3 of eight about once in ten times. Parts
# are many: of ten equal ones some have a p below 0.3, and each would make the comparison go on.
QUIET_STEP, QUIET_PART = 0.3, 0.05

# The parts of each side against the first, for when they are needed: reading them takes seconds.
Parts = Callable[[], Sequence[Sequence[Judgement]]]


def step(shift: ranks.Shift, adjusted_p: float, resolution: float) -> bool:
    """Return whether a step's log ratio to the first side is settled."""
    if (shift.low > 0 or shift.high < 0) and adjusted_p <= ALONE:
        return True
    return shift.p > QUIET_STEP and math.expm1(shift.detectable) <= resolution


def parts(found: Sequence[Judgement]) -> bool:
    """Return whether all these parts are settled; without any that is not known."""
    return bool(found) and all(
        one.p is None or one.verdict in (BETTER, WORSE) or one.p * one.share > QUIET_PART for one in found
    )


def parts_of(
    folder: Path, labels: Sequence[str], launches: Sequence[RecordedLaunch], share: float
) -> list[list[Judgement]]:
    """The parts of each side against the first, from the launches below `folder`, judged as the comparison will be."""
    from perfkit.compare import judge, sides
    from perfkit.compare.metrics import VerdictRule
    from perfkit.table import KernelTable

    if any(launch.unusable or not all(launch.tables) for launch in launches):
        return [[] for _ in labels[1:]]
    record = Measurement(
        perfkit="", created="", command=[], launches=list(launches), share=share,
        sides=[MeasuredSide(label=label, run="", backend=label) for label in labels],
    )  # fmt: skip
    made = []
    for place in range(len(labels)):
        tables = [KernelTable.load(folder / launch.tables[place]) for launch in launches]
        made.append(sides.of_launches(record, place, None, tables, str(folder)))
    return [[one.judgement for one in judge.tested(made[0], other, VerdictRule())] for other in made[1:]]
