"""Any program before and after a change: launches, in each a fresh process of either side, one after the other.

Where they may, the processes of several launches start at the same time, and then wait for their turns (`together`).
Which side comes first is drawn by lot for each launch: where both are the same program, either sign of a difference is
as likely, and the signed ranks of `perfkit.compare` are exact. `stopping` says how many launches there are.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit import correctness
from perfkit.capture.agent.order import Order
from perfkit.compare import stopping
from perfkit.compare.record import RecordedLaunch, Turn
from perfkit.compare.stopping import StoppingRule
from perfkit.errors import RunFailed
from perfkit.statistics import series
from perfkit.tries import printed, together
from perfkit.tries.printed import Checked
from perfkit.tries.running import Ran, run
from perfkit.tries.trees import Tree

_PATIENCE_S, _PATIENCE = 60.0, 10.0  # seconds that a run may take, and multiples of the other side's time
_LONGEST_S = 86_400.0

Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class TimedCommand:
    """A command, the steps of it that are timed, and what it prints: names of values, and how far they may differ."""

    command: Sequence[str]
    order: Order
    values: Sequence[str] = ("loss", "trl")
    tolerance: float | None = None


@dataclass
class MeasuredSides:
    """Launches of both sides, the reason for their number, and what became of the results.

    `failed` says why there are no times after the change; `elsewhere` are changed files that the program did not take
    from the copies: what was run is then not what was changed.
    """

    launches: list[RecordedLaunch]
    stopped: str
    checked: Checked
    steps_are: str = ""
    failed: str = ""
    elsewhere: list[str] = field(default_factory=list)
    how: str = ""


def measure(
    program: TimedCommand, sides: Sequence[Tree], plan: StoppingRule, scratch: Path, say: Progress
) -> MeasuredSides:  # fmt: skip
    """Run each side once and hold the results against each other, then measure in turns until the verdict stands.

    Raises `RunFailed` where the program gives no times before the change.
    """
    taken = _Turns(program, sides, scratch, say)
    for side in (0, 1):
        taken.run(side, "checking", "the results")
    checked = taken.check()
    if checked.error is not None and checked.status != printed.RIGHT:
        taken.run(0, "checking", "the results")  # whether the losses before the change agree among themselves
        checked = taken.check()
    lots, begun, stop = random.Random(plan.seed), time.monotonic(), ""
    while not (stop or taken.failed or checked.status == printed.WRONG):
        most = max(1, min(taken.at_once(), plan.until_look(len(taken.launches))))
        taken.launch([lots.sample((0, 1), 2) for _ in range(most)])
        if not taken.failed:
            checked = taken.check()
            stop = stopping.why(taken.launches, 2, plan, time.monotonic() - begun)
    return taken.measured(stop, checked)


class _Turns:
    """The runs of both sides as they come, and the launches that are made of them."""

    def __init__(self, program: TimedCommand, sides: Sequence[Tree], scratch: Path, say: Progress) -> None:
        self._program, self._sides, self._scratch, self._say = program, sides, scratch, say
        self._ran: tuple[list[Ran], list[Ran]] = ([], [])
        self.launches: list[RecordedLaunch] = []
        self.failed = ""
        self._at_once: int | None = None  # launches; None until a run of each side says

    def run(self, side: int, who: str, what: str) -> None:
        """Run one side once. After the change a run may take several times as long as before it, and no longer."""
        if self.failed:
            return
        self._say(who, f"{what} · {self._sides[side].label}")
        place = self._scratch / f"{sum(map(len, self._ran))}-{side}"
        one = run(self._program.command, self._sides[side], self._program.order, place, self._limit())
        if one.problem and side == 0:
            raise RunFailed(f"The program gives no times before the change: {one.problem}", one.result.hint)
        self.failed = one.problem
        self._ran[side].append(one)

    def _limit(self) -> float:
        """Seconds for a run, by the first one before the change."""
        return max(_PATIENCE_S, _PATIENCE * self._ran[0][0].seconds) if self._ran[0] else _LONGEST_S

    def at_once(self) -> int:
        """Return the number of launches that may start at the same time; 0 where each process has to run alone."""
        if self._at_once is None and not self.failed:
            self._at_once = together.at_once([runs[0] for runs in self._ran], self._program.order)
        return self._at_once or 0

    def launch(self, orders: Sequence[Sequence[int]]) -> None:
        """Run both sides in each of `orders`: started together where that is possible, else one after the other."""
        done = self._together(orders) if self.at_once() else 0
        for order in orders[done:]:
            for side in order:
                self.run(side, f"launch {len(self.launches) + 1}", "measuring")
            if self.failed:
                return
            self._add(order, [runs[-1] for runs in self._ran])

    def _together(self, orders: Sequence[Sequence[int]]) -> int:
        """Start the processes of all launches at the same time, and return how many of the launches are measured.

        A program that fails so may need something that it then does not have alone, such as a port or a file: from
        then on each process runs alone, and what fails there fails.
        """
        first, last = len(self.launches) + 1, len(self.launches) + len(orders)
        self._say(f"launch {first}", "measuring" if first == last else f"measuring · up to launch {last} at once")
        places = [self._scratch / f"launch-{number}" for number in range(first, last + 1)]
        made = together.run(
            self._program.command, self._sides, orders, self._program.order, places, self._limit()
        )  # fmt: skip
        for order, pair in zip(orders, made, strict=False):
            for side, one in enumerate(pair):
                self._ran[side].append(one)
            self._add(order, pair)
        if len(made) < len(orders):
            self._at_once = 0
        return len(made)

    def _add(self, order: Sequence[int], pair: Sequence[Ran]) -> None:
        self.launches.append(
            RecordedLaunch(
                turns=[Turn(side, 0, pair[side].samples_ns) for side in order],
                warmup_ns=[one.warmup_ns for one in pair],
                steady_from=[series.warmup_end([*one.warmup_ns, *one.samples_ns]) for one in pair],
                peak_memory_bytes=[one.result.peak_memory_bytes for one in pair],
                tables=["", ""],
            )
        )

    def check(self) -> Checked:
        """Hold what was printed until now against the first run before the change."""
        if self.failed:
            return Checked(status=printed.UNKNOWN, how="", why="the program failed after the change")
        before, after = ([printed.series_of(one.output, self._program.values) for one in runs] for runs in self._ran)
        allowed = self._program.tolerance
        if allowed is None:
            dtype = self._ran[0][0].result.dtype
            allowed = correctness.SLACK * correctness.LOSS_FLOOR.get(dtype, correctness.LOSS_FLOOR["fp32"])
        return printed.check(before, after, allowed)

    def measured(self, stopped: str, checked: Checked) -> MeasuredSides:
        """Return the measurements until now."""
        words = self._ran[0][0].result.steps_are
        count = len(self.launches)
        how = f"{count} launches, in each a fresh process of either side, in an order drawn by lot"
        return MeasuredSides(self.launches, stopped, checked, words, self.failed, self._loaded(), how)

    def _loaded(self) -> list[str]:
        """Which changed files the program did not take from the copies: then nothing was tried."""
        loaded = {path for runs in self._ran for one in runs for path in one.result.loaded}
        own = sorted({str(side.original) for side in self._sides})
        return sorted(path for path in loaded if any(path.startswith(f"{place}/") for place in own))
