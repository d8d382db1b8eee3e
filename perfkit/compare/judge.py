"""Sides against the first of them: verdicts, the waterfall, the tree side by side, and what became of what."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

import perfkit
from perfkit.analysis import difference
from perfkit.analysis.report.aggregate import UNKNOWN
from perfkit.analysis.results import Interval
from perfkit.compare import side_by_side, waterfall
from perfkit.compare.results import Comparison, Pair, SideResult, Tested, TreeLine
from perfkit.compare.sides import LAUNCH, Side, Values
from perfkit.hardware import comparable
from perfkit.statistics import judging, median, turns
from perfkit.statistics.judging import Judgement, judge
from perfkit.tree.aligned import align_places
from perfkit.tree.places import NOT_PLACED

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[str, str], None]  # of whom, and what is being done

ONE_PROCESS = 0.03  # what two processes of the same program may differ by, where each side ran in one
OTHER_TIME = 0.05  # what two runs of the same program may differ by, made at different times
LEAST_SHARE = 0.01  # of either side's kernel time: smaller families are shown, and not tested
# What the first and the other must have been asked to do alike, by its name in the settings.
_SETTINGS = (
    "workload", "preset", "variant", "dimensions", "device", "dtype", "batch_size", "sequence_length", "training",
    "grad_accumulation", "recompute", "optimizer", "weights", "config", "data", "launch_blocking",
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """How verdicts are reached: the change that must not stay hidden for "no difference shown", and the allowance for
    what the values cannot tell (None: by how they were measured)."""

    resolution: float = judging.RESOLUTION
    allowance: float | None = None


class Weighed(NamedTuple):
    """A metric judged by itself, and the log ratio of each launch that it was judged by, where there is one."""

    tested: Tested
    differences: list[float] | None = None


def compare(
    sides: Sequence[Side], rule: Rule | None = None, how: str = "", title: str = "", say: Progress | None = None
) -> Comparison:
    """Every other side against the first; `say` is told what is being done where launches are compared, which takes
    seconds. Raises `ValueError` for no sides."""
    if not sides:
        raise ValueError("nothing to compare")
    rule = rule or Rule()
    stage = say if say and any(len(s.launch_of_step) for s in sides) else lambda who, what: None
    marked = next((s.frame for s in sides if s.backend.name == "eager" and s.frame is not None), None)
    placed, pairs = [], []
    for side in sides:
        stage(side.label, "placing the kernels")
        placed.append(_placed(side, marked))
    for other, lines in zip(sides[1:], placed[1:], strict=True):
        stage(other.label, f"testing against {sides[0].label}")
        pairs.append(_pair(sides[0], other, rule, placed[0], lines))
    steps = judging.correct([p.step.judgement for p in pairs], rule.resolution)
    pairs = [_with_step(pair, one) for pair, one in zip(pairs, steps, strict=True)]
    found = Comparison(
        perfkit=perfkit.__version__,
        title=title or " against ".join([", ".join(s.label for s in sides[1:]) or "nothing", sides[0].label]),
        sides=[_result(s, p) for s, p in zip(sides, placed, strict=True)],
        pairs=pairs,
        tree=_tree(placed),
        how=how,
        notes=list(_notes(sides)),
    )
    found.verdict = list(_sentences(found))
    return found


def _placed(side: Side, marked: pd.DataFrame | None) -> pd.DataFrame | None:
    """The lines of a side's kernels in the tree, those without marks placed by `marked`; None without a profile."""
    if side.frame is None or side.judged is None:
        return None
    frame = side.frame if marked is None else align_places(side.frame, marked)
    return side_by_side.placed(frame, side.judged, side.steps)


def incomparable(first: Side, second: Side) -> list[str]:
    """Why the times of two sides must not be compared, in words; empty where nothing forbids it."""
    found = []
    a, b = first.manifest, second.manifest
    if a is not None and b is not None:
        for name in _SETTINGS:
            one, other = getattr(a.settings, name), getattr(b.settings, name)
            if one != other:
                found.append(f"{name.replace('_', ' ')}: {_word(one)} and {_word(other)}")
        found += comparable(a.environment, b.environment)
    one, other = first.backend.device, second.backend.device
    if one and other and one != other and not any(words.startswith("device:") for words in found):
        found.append(f"device: {one} and {other}")
    if first.table is not None and second.table is not None and first.backend.per != second.backend.per:
        found.append(f"amounts are of a {first.backend.per} and of a {second.backend.per}")
    gpus = [
        sorted(g.get("name", "") for g in s.table.facts.get("gpus") or []) if s.table else [] for s in (first, second)
    ]
    if all(gpus) and gpus[0] != gpus[1] and not any(words.startswith("GPUs:") for words in found):
        found.append(f"GPUs: {', '.join(gpus[0])} and {', '.join(gpus[1])}")
    return found


def _word(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return {True: "yes", False: "no", None: "none", "": "none"}.get(value, str(value))  # type: ignore[call-overload,no-any-return]


def allowance_of(first: Values, second: Values, rule: Rule) -> float:
    """What the values cannot tell: nothing of launches that alternated, more the farther apart two runs are."""
    if rule.allowance is not None:
        return rule.allowance
    if first.origin and first.origin == second.origin:
        return 0.0 if first.unit == LAUNCH else ONE_PROCESS
    return OTHER_TIME


def weigh(
    metric: str, unit: str, first: Values, second: Values, rule: Rule, shown: tuple[float | None, float | None],
    higher_is_better: bool = False,
) -> Weighed:  # fmt: skip
    """One metric of two sides, judged by itself."""
    differences = None
    usable = [all(v > 0 and math.isfinite(v) for v in one.values) for one in (first, second)]
    allowance = allowance_of(first, second, rule)
    if not all(usable):
        found = Judgement(verdict=judging.UNKNOWN, why="some values are zero or unknown", unit=first.unit)
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
    return Weighed(Tested(metric=metric, unit=unit, first=shown[0], second=shown[1], judgement=found), differences)


def _untested(metric: str, unit: str, shown: tuple[float | None, float | None], why: str, of: str = "") -> Weighed:
    """A metric that nothing can be said of."""
    found = Judgement(verdict=judging.UNKNOWN, why=why, unit=of or Judgement(verdict="").unit)
    return Weighed(Tested(metric=metric, unit=unit, first=shown[0], second=shown[1], judgement=found))


def differences_of(first: Values, second: Values) -> list[float]:
    """The log ratio of each launch: by the profiled steps that the sides recorded next to each other, where there are
    such, else by the values."""
    shifts: Iterable[float | None] = [None] * len(first.values)
    if first.steps and second.steps:
        shifts = map(turns.log_ratio, first.steps, second.steps)
    values = zip(first.values, second.values, shifts, strict=True)
    return [math.log(other) - math.log(one) if shift is None else shift for one, other, shift in values]


def _pair(first: Side, second: Side, rule: Rule, one: pd.DataFrame | None, other: pd.DataFrame | None) -> Pair:
    step = step_test(first, second, rule)
    changes = difference.difference(first.report, second.report, (first.backend.name, second.backend.name))
    profiled = first.table is not None and second.table is not None
    steps = _centre(first), _centre(second)
    weighed = [*(_parts(first, second, rule) if profiled else ()), *_others(first, second, rule)]
    tested = [one.tested for one in weighed]
    gains = {i for i, one in enumerate(tested) if one.metric == "efficiency"}
    lines = [one.differences for one in weighed]
    judged = judging.correct([one.judgement for one in tested], rule.resolution, gains, lines)
    return Pair(
        first=first.label,
        second=second.label,
        step=step,
        tested=[msgspec.structs.replace(one, judgement=found) for one, found in zip(tested, judged, strict=True)],
        waterfall=waterfall.waterfall(first.backend, second.backend, steps) if profiled else None,
        exchanges=side_by_side.exchanges(one, other) if one is not None and other is not None else [],
        operators=changes.operators,
        kernels=changes.kernels,
    )


def step_test(first: Side, second: Side, rule: Rule) -> Tested:
    """The timed step of two sides; of results that are wrong no speed is judged."""
    shown = _centre(first), _centre(second)
    wrong = next((s for s in (first, second) if s.backend.status in ("wrong", "failed", "unavailable")), None)
    if wrong is not None:
        why = f"{wrong.label} is {wrong.backend.status}: {wrong.backend.reason or 'no reason is known'}"
        return _untested("step", "ns", shown, why).tested
    if first.step is None or second.step is None:
        why = f"{(first if first.step is None else second).label} was not timed"
        return _untested("step", "ns", shown, why).tested
    return weigh("step", "ns", first.step, second.step, rule, shown).tested


def _centre(side: Side) -> float | None:
    """The timed step in ns: the median over launches or turns."""
    return float(np.median(side.step.values)) if side.step and side.step.values else None


def _parts(first: Side, second: Side, rule: Rule) -> Iterator[Weighed]:
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
    first: Side, second: Side, column: str, name: str, rule: Rule, shown: tuple[float | None, float | None]
) -> Weighed:
    """Kernel time of one pass or family, by the profiled steps; of a kernel that serves several passes its parts."""
    values = []
    for side in (first, second):
        assert side.frame is not None and side.places is not None and side.judged is not None
        if column == "pass":
            share = side.places.in_pass(NOT_PLACED if name == UNKNOWN else name)
        else:
            share = (side.frame[column].astype(object).fillna("other") == name).to_numpy(float)
        values.append(side.per_unit(side.judged.time * share))
    if not all(one.values for one in values):
        return _untested(f"{column}:{name}", "ns", shown, "the profile marks no steps", values[0].unit)
    if shown[0] is None or shown[1] is None:
        return _untested(f"{column}:{name}", "ns", shown, "only one side has it", values[0].unit)
    return weigh(f"{column}:{name}", "ns", values[0], values[1], rule, shown)


def _others(first: Side, second: Side, rule: Rule) -> Iterator[Weighed]:
    if first.memory and second.memory:
        yield memory(first, second, rule)
    if first.backend.efficiency is not None and second.backend.efficiency is not None:
        yield efficiency(first, second, rule)


def memory(first: Side, second: Side, rule: Rule) -> Weighed:
    """Peak memory. Raises `ValueError` where a side has none."""
    if first.memory is None or second.memory is None:
        raise ValueError("a side has no peak memory")
    shown = float(np.median(first.memory.values)), float(np.median(second.memory.values))
    if len(first.memory.values) == len(second.memory.values) == 1:
        found = _single(*shown, rule)
        return Weighed(Tested(metric="memory", unit="B", first=shown[0], second=shown[1], judgement=found))
    return weigh("memory", "B", first.memory, second.memory, rule, shown)


def _single(first: float, second: float, rule: Rule) -> Judgement:
    """One value each, known but for the allowance: there is nothing to test."""
    allowance = OTHER_TIME if rule.allowance is None else rule.allowance
    ratio = second / first
    found = Judgement(
        verdict=judging.UNKNOWN, ratio=ratio, low=ratio / (1 + allowance), high=ratio * (1 + allowance),
        detectable=allowance, n=1, unit="run", method="one value each", allowance=allowance,
    )  # fmt: skip
    return msgspec.structs.replace(judging.decide(found, 0.0, rule.resolution), adjusted_p=None)


def efficiency(first: Side, second: Side, rule: Rule) -> Weighed:
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


def _with_step(pair: Pair, judgement: Judgement) -> Pair:
    return msgspec.structs.replace(pair, step=msgspec.structs.replace(pair.step, judgement=judgement))


def _tree(placed: Sequence[pd.DataFrame | None]) -> list[TreeLine]:
    """The tree of all sides; those without a profile have empty places in it."""
    profiled = [p for p in placed if p is not None]
    return side_by_side.tree([profiled[0].iloc[:0] if p is None else p for p in placed]) if profiled else []


def _result(side: Side, placed: pd.DataFrame | None) -> SideResult:
    backend = side.backend
    evidence = side_by_side.evidence(placed) if placed is not None else {}
    estimate = median(side.step.values) if side.step and side.step.values else None
    count = sum(g.count for g in backend.families) if backend.families else None
    return SideResult(
        label=side.label,
        source=side.source,
        backend=backend.name,
        status=backend.status,
        reason=backend.reason,
        unusable=backend.unusable,
        checked=backend.correctness is not None and backend.correctness.ok,
        step=Interval(estimate.value, estimate.low, estimate.high, estimate.n) if estimate else None,
        units=len(side.step.values) if side.step else 0,
        unit=side.step.unit if side.step else "",
        kernel_ns=backend.kernel_ns if side.table is not None else None,
        launches=count,
        flop=backend.counted_flop,
        bytes=backend.counted_bytes,
        efficiency=backend.efficiency,
        peak_memory_bytes=float(np.median(side.memory.values)) if side.memory else None,
        profiled_steps=side.steps,
        per=backend.per,
        placed=1.0 - evidence.get(side_by_side.NOT_PLACED, 0.0) if evidence else None,
        evidence=evidence,
        flags=side.flags,
    )


def _notes(sides: Sequence[Side]) -> Iterator[str]:
    for side in sides:
        yield from (f"{side.label}: {flag}" for flag in side.flags)
        yield from (f"{side.label}: {warning}" for warning in side.backend.warnings)


def _sentences(found: Comparison) -> Iterator[str]:
    """What is to be said first."""
    for pair in found.pairs:
        j = pair.step.judgement
        if j.ratio is not None and j.low is not None and j.high is not None:
            interval = f"{j.ratio - 1:+.1%} (95 % interval {j.low - 1:+.1%} to {j.high - 1:+.1%})"
            said = f"{pair.second} against {pair.first}: {j.verdict}. The step takes {interval}"
            why = f"; {j.why}" if j.why else ""
            yield f"{said}{why}."
        else:
            yield f"{pair.second} against {pair.first}: {j.verdict}{f', for {j.why}' if j.why else ''}."
    yield from (f"{s.label} is {s.status}: {s.reason}" for s in found.sides if s.status in ("wrong", "failed"))
    yield from (f"The profile of {s.label} is unusable: {s.unusable}" for s in found.sides if s.unusable)
