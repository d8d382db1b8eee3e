"""The metrics of two sides, each judged by itself: step, kernel time by pass and family, memory, efficiency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from perfkit.analysis.report.aggregate import UNKNOWN
from perfkit.compare.iterations import ITERATION, of_phase
from perfkit.compare.results import JudgedMetric
from perfkit.compare.sides import LAUNCH, Side, Values
from perfkit.statistics import interleaved, verdicts
from perfkit.statistics.verdicts import Judgement, judge
from perfkit.tree.places import NOT_PLACED

ONE_PROCESS = 0.03  # what two processes of the same program may differ by, where each side ran in one
OTHER_TIME = 0.05  # what two runs of the same program may differ by, made at different times
LEAST_SHARE = 0.01  # of either side's kernel time: smaller families are shown, and not tested


@dataclass(frozen=True)
class VerdictRule:
    """How verdicts are reached: the change that must not stay hidden for "no difference shown", and the allowance for
    the uncertainty beyond the values (None: by how they were measured)."""

    resolution: float = verdicts.RESOLUTION
    allowance: float | None = None


class Weighed(NamedTuple):
    """A metric judged by itself, and the log ratio of each launch that it was judged by, where there is one."""

    tested: JudgedMetric
    differences: list[float] | None = None


def allowance_of(first: Values, second: Values, rule: VerdictRule) -> float:
    """Return the uncertainty beyond the values: 0 for launches that alternated, more the farther apart two runs are."""
    if rule.allowance is not None:
        return rule.allowance
    if first.origin and first.origin == second.origin:
        return 0.0 if first.unit == LAUNCH else ONE_PROCESS
    return OTHER_TIME


def weigh(
    metric: str, unit: str, first: Values, second: Values, rule: VerdictRule, shown: tuple[float | None, float | None],
    higher_is_better: bool = False,
) -> Weighed:  # fmt: skip
    """One metric of two sides, judged by itself."""
    differences = None
    usable = [all(v > 0 and math.isfinite(v) for v in one.values) for one in (first, second)]
    allowance = allowance_of(first, second, rule)
    if not all(usable):
        found = Judgement(verdict=verdicts.UNKNOWN, why="some values are zero or unknown", unit=first.unit)
    else:
        together = first.pairs and second.pairs and first.origin == second.origin != ""
        together = together and len(first.values) == len(second.values)
        differences = differences_of(first, second) if together else None
        found = judge(
            first.values, second.values, pairs=together, unit=first.unit,
            differences=differences, allowance=allowance, share=min(first.share, second.share),
            resolution=rule.resolution, higher_is_better=higher_is_better,
        )  # fmt: skip
        if found.low is None and shown[0] and shown[1] is not None:  # nothing was tested: the values as they are shown
            found = msgspec.structs.replace(found, ratio=shown[1] / shown[0])
    return Weighed(
        JudgedMetric(metric=metric, unit=unit, first=shown[0], second=shown[1], judgement=found), differences
    )


def untested(metric: str, unit: str, shown: tuple[float | None, float | None], why: str, of: str = "") -> Weighed:
    """A metric that nothing can be said of."""
    found = Judgement(verdict=verdicts.UNKNOWN, why=why, unit=of or Judgement(verdict="").unit)
    return Weighed(JudgedMetric(metric=metric, unit=unit, first=shown[0], second=shown[1], judgement=found))


def differences_of(first: Values, second: Values) -> list[float]:
    """The log ratio of each launch: by the profiled steps that the sides recorded next to each other, where there are
    such, else by the values."""
    shifts: Iterable[float | None] = [None] * len(first.values)
    if first.steps and second.steps:
        shifts = map(interleaved.log_ratio, first.steps, second.steps)
    values = zip(first.values, second.values, shifts, strict=True)
    return [math.log(other) - math.log(one) if shift is None else shift for one, other, shift in values]


def step_test(first: Side, second: Side, rule: VerdictRule) -> JudgedMetric:
    """The timed step of two sides; of results that are wrong no speed is judged."""
    shown = centre(first), centre(second)
    wrong = next((s for s in (first, second) if s.backend.status in ("wrong", "failed", "unavailable")), None)
    if wrong is not None:
        why = f"{wrong.label} is {wrong.backend.status}: {wrong.backend.reason or 'no reason is known'}"
        return untested("step", "ns", shown, why).tested
    if first.step is None or second.step is None:
        why = f"{(first if first.step is None else second).label} was not timed"
        return untested("step", "ns", shown, why).tested
    return weigh("step", "ns", first.step, second.step, rule, shown).tested


def centre(side: Side) -> float | None:
    """The timed step in ns: the median over launches or turns."""
    return float(np.median(side.step.values)) if side.step and side.step.values else None


def parts(first: Side, second: Side, rule: VerdictRule) -> Iterator[Weighed]:
    """Kernel time by pass and by family, in the order of what they take; the small ones are not tested."""
    for column, kind in (("pass", "pass"), ("family", "family")):
        sums = [{g.key: g.time_ns for g in (s.backend.passes if kind == "pass" else s.backend.families)}
                for s in (first, second)]  # fmt: skip
        whole = [sum(one.values()) for one in sums]
        names = dict.fromkeys([*sums[0], *sums[1]])
        for name in sorted(names, key=lambda n: -sum(one.get(n, 0.0) for one in sums)):
            shown = sums[0].get(name), sums[1].get(name)
            if max((v or 0.0) / w if w else 0.0 for v, w in zip(shown, whole, strict=True)) >= LEAST_SHARE:
                yield kernel_time(first, second, column, name, rule, shown)


def kernel_time(
    first: Side, second: Side, column: str, name: str, rule: VerdictRule, shown: tuple[float | None, float | None]
) -> Weighed:
    """Kernel time of one pass or family, by the profiled steps; of a kernel that serves several passes its parts."""
    values = []
    for side in (first, second):
        assert side.frame is not None and side.places is not None and side.judged is not None
        if column == "pass":
            share = side.places.in_pass(NOT_PLACED if name == UNKNOWN else name)
        else:
            share = (side.frame[column].astype(object).fillna("other") == name).to_numpy(float)
        summed = side.per_unit(side.judged.time * share)
        values.append(of_phase(side, summed, name) if column == "pass" else summed)
    if all(one.unit == ITERATION for one in values):  # of an iteration of the phase, not of any step
        shown = float(np.mean(values[0].values)), float(np.mean(values[1].values))
    if not all(one.values for one in values):
        return untested(f"{column}:{name}", "ns", shown, "the profile marks no steps", values[0].unit)
    if shown[0] is None or shown[1] is None:
        return untested(f"{column}:{name}", "ns", shown, "only one side has it", values[0].unit)
    return weigh(f"{column}:{name}", "ns", values[0], values[1], rule, shown)


def others(first: Side, second: Side, rule: VerdictRule) -> Iterator[Weighed]:
    """Compare peak memory and efficiency, each if both sides know it."""
    if first.memory and second.memory:
        yield memory(first, second, rule)
    if first.backend.efficiency is not None and second.backend.efficiency is not None:
        yield efficiency(first, second, rule)


def memory(first: Side, second: Side, rule: VerdictRule) -> Weighed:
    """Peak memory. Raises `ValueError` where a side has none."""
    if first.memory is None or second.memory is None:
        raise ValueError("a side has no peak memory")
    shown = float(np.median(first.memory.values)), float(np.median(second.memory.values))
    if len(first.memory.values) == len(second.memory.values) == 1:
        found = _single(*shown, rule)
        return Weighed(JudgedMetric(metric="memory", unit="B", first=shown[0], second=shown[1], judgement=found))
    return weigh("memory", "B", first.memory, second.memory, rule, shown)


def _single(first: float, second: float, rule: VerdictRule) -> Judgement:
    """One value each, known except for the allowance: there is nothing to test."""
    allowance = OTHER_TIME if rule.allowance is None else rule.allowance
    ratio = second / first
    found = Judgement(
        verdict=verdicts.UNKNOWN, ratio=ratio, low=ratio / (1 + allowance), high=ratio * (1 + allowance),
        detectable=allowance, n=1, unit="run", method="one value each", allowance=allowance,
    )  # fmt: skip
    return msgspec.structs.replace(verdicts.decide(found, 0.0, rule.resolution), adjusted_p=None)


def efficiency(first: Side, second: Side, rule: VerdictRule) -> Weighed:
    """Σ roof time / Σ time of the judged rows, by profiled steps or launches."""
    values = []
    for side in (first, second):
        assert side.judged is not None
        mask = side.judged.judged
        roof, time = side.per_unit(side.judged.roof, mask), side.per_unit(side.judged.time, mask)
        ratios = [r / t if t else 0.0 for r, t in zip(roof.values, time.values, strict=True)]
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = [r / t for r, t in zip(roof.steps, time.steps, strict=True)]
        values.append(Values(ratios, roof.unit, roof.pairs, roof.origin, steps, roof.share))
    shown = first.backend.efficiency, second.backend.efficiency
    return weigh("efficiency", "%", values[0], values[1], rule, shown, higher_is_better=True)
