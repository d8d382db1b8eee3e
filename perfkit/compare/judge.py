"""Sides against the first of them: verdicts, the waterfall, the tree side by side, and what became of what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import perfkit
from perfkit.analysis import difference
from perfkit.analysis.results import Interval
from perfkit.compare import phases, side_by_side, waterfall, winners
from perfkit.compare.metrics import VerdictRule, centre, others, parts, step_test
from perfkit.compare.results import Comparison, JudgedMetric, Pair, SideResult, TreeLine
from perfkit.compare.sides import Side
from perfkit.hardware.identity import comparable
from perfkit.instructions.changes import changes as code_changes
from perfkit.instructions.results import CODE
from perfkit.statistics import median, verdicts
from perfkit.statistics.verdicts import Judgement
from perfkit.tree.aligned import align_places

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[str, str], None]  # of whom, and what is being done

# Settings in which the first and the other side must agree, by name.
_SETTINGS = (
    "workload", "preset", "variant", "dimensions", "device", "dtype", "batch_size", "sequence_length", "training",
    "grad_accumulation", "recompute", "optimizer", "weights", "config", "data", "launch_blocking",
    "allocator",
)  # fmt: skip


def compare(
    sides: Sequence[Side], rule: VerdictRule | None = None, how: str = "", title: str = "", say: Progress | None = None
) -> Comparison:
    """Compare every other side with the first; `say` gets progress where launches are compared, which takes
    seconds. Raises `ValueError` for no sides."""
    if not sides:
        raise ValueError("nothing to compare")
    rule = rule or VerdictRule()
    stage = say if say and any(len(s.launch_of_step) for s in sides) else lambda who, what: None
    marked = next((s.frame for s in sides if s.backend.name == "eager" and s.frame is not None), None)
    placed, pairs = [], []
    for side in sides:
        stage(side.label, "placing the kernels")
        placed.append(_placed(side, marked))
    for other, lines in zip(sides[1:], placed[1:], strict=True):
        stage(other.label, f"testing against {sides[0].label}")
        pairs.append(_pair(sides[0], other, rule, placed[0], lines))
    steps = verdicts.correct([p.step.judgement for p in pairs], rule.resolution)
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
    found.verdict = [*_sentences(found), *_untimed(sides)]
    return found


def _placed(side: Side, marked: pd.DataFrame | None) -> pd.DataFrame | None:
    """The lines of a side's kernels in the tree, those without marks placed by `marked`; None without a profile."""
    if side.frame is None or side.judged is None:
        return None
    frame = side.frame if marked is None else align_places(side.frame, marked)
    return side_by_side.placed(frame, side.judged, side.steps)


def incomparable(first: Side, second: Side) -> list[str]:
    """Why the times of two sides must not be compared, in words; empty where nothing forbids it."""
    reasons = []
    a, b = first.manifest, second.manifest
    if a is not None and b is not None:
        for name in _SETTINGS:
            own_value, other = getattr(a.settings, name), getattr(b.settings, name)
            if own_value != other:
                reasons.append(f"{name.replace('_', ' ')}: {_word(own_value)} and {_word(other)}")
        reasons += comparable(a.environment, b.environment)
    own_value, other = first.backend.device, second.backend.device
    if own_value and other and own_value != other and not any(words.startswith("device:") for words in reasons):
        reasons.append(f"device: {own_value} and {other}")
    if first.table is not None and second.table is not None and first.backend.per != second.backend.per:
        reasons.append(f"amounts are of a {first.backend.per} and of a {second.backend.per}")
    gpus = [sorted(s.table.facts.get("gpus") or [], key=_gpu_name) if s.table else [] for s in (first, second)]
    if all(gpus) and not _like_gpus(*gpus) and not any(words.startswith("GPUs:") for words in reasons):
        reasons.append(f"GPUs: {' and '.join(', '.join(map(_gpu_name, side)) for side in gpus)}")
    return reasons


def _gpu_name(gpu: Mapping[str, Any]) -> str:
    return str(gpu.get("name", ""))


def _like_gpus(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> bool:
    """Return whether two sides may have run on like GPUs; a profile that knows no model has `vendor` (JAX's)."""
    return len(first) == len(second) and all(_like(a, b) for a, b in zip(first, second, strict=True))


def _like(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    if _gpu_name(a) == _gpu_name(b):
        return True
    for known, other in ((a, b), (b, a)):
        vendor, units = known.get("vendor"), {known.get("smCount"), other.get("smCount")} - {None}
        if vendor and _gpu_name(other).casefold().startswith(str(vendor).casefold()) and len(units) < 2:
            return True
    return False


def _word(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return {True: "yes", False: "no", None: "none", "": "none"}.get(value, str(value))  # type: ignore[call-overload,no-any-return]


def _pair(first: Side, second: Side, rule: VerdictRule, one: pd.DataFrame | None, other: pd.DataFrame | None) -> Pair:
    step = step_test(first, second, rule)
    changes = difference.difference(first.report, second.report, (first.backend.name, second.backend.name))
    profiled = first.has_times and second.has_times
    unknown = first.untimed_calls or second.untimed_calls  # times that are unknown differ by nothing that is known
    steps = centre(first), centre(second)
    return Pair(
        first=first.label,
        second=second.label,
        step=step,
        tested=tested(first, second, rule),
        waterfall=waterfall.waterfall(first.backend, second.backend, steps) if profiled else None,
        exchanges=side_by_side.exchanges(one, other) if one is not None and other is not None and not unknown else [],
        served=winners.winners(first, second, rule),
        phases=phases.phases(first, second, rule),
        operators=[] if unknown else changes.operators,
        kernels=[] if unknown else changes.kernels,
        lines=changes.lines,
        code=code_changes(
            *([] if side.table is None else side.table.recorded.get(CODE) or [] for side in (first, second))
        ),
    )


def tested(first: Side, second: Side, rule: VerdictRule) -> list[JudgedMetric]:
    """Passes, families, memory and efficiency of two sides, judged and corrected together."""
    profiled = first.has_times and second.has_times
    weighed = [*(parts(first, second, rule) if profiled else ()), *others(first, second, rule)]
    alone = [one.tested for one in weighed]
    gains = {i for i, one in enumerate(alone) if one.metric == "efficiency"}
    lines = [one.differences for one in weighed]
    judged = verdicts.correct([one.judgement for one in alone], rule.resolution, gains, lines)
    return [msgspec.structs.replace(one, judgement=found) for one, found in zip(alone, judged, strict=True)]


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
    count = sum(g.count for g in backend.families) if backend.families else side.untimed_launches
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
        kernel_ns=backend.kernel_ns if side.has_times else None,
        launches=count,
        flop=backend.counted_flop,
        flop_known=backend.coverage.flop if backend.coverage else 1.0,
        bytes=backend.counted_bytes,
        bytes_known=backend.coverage.bytes if backend.coverage else 1.0,
        efficiency=backend.efficiency,
        datasheet=backend.datasheet,
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
    """Return the first sentence."""
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


def _untimed(sides: Sequence[Side]) -> Iterator[str]:
    """Which profiles hold no durations, so that no times are compared with theirs."""
    for side in sides:
        if side.untimed_calls:
            calls = "1 kernel call" if side.untimed_calls == 1 else f"{side.untimed_calls:,} kernel calls"
            yield (
                f"The profile of {side.label} holds {calls} without durations: its kernel time is unknown, and no "
                "difference of times is shown."
            )
