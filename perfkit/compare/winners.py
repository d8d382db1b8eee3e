"""Which of two sides serves each part of the model better, and why: of sides that differ in their executors.

A part is a pass, a module (its repeated layers together) and a logical operator. Its kernel time is judged over
launches as every other metric is, all parts corrected together. The reason is read from both sides' kernels: what is
fused, what is called less often, what moves less, and else which kernel is faster at the same work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from perfkit import units
from perfkit.compare.metrics import LEAST_SHARE, VerdictRule, Weighed, untested, weigh
from perfkit.compare.results import PartWinner
from perfkit.compare.side_by_side import without_numbers
from perfkit.compare.sides import Side, Values
from perfkit.statistics import verdicts
from perfkit.tree import nodes

Part = tuple[str, str, str]
LESS = 0.9  # of what the other calls or moves: less than that is a reason


@dataclass(frozen=True)
class Amounts:
    """Work of one side for a part in one step: time in ns, calls, bytes (NaN where unknown), kernels by time, and
    the share of the time that belongs to kernels that serve other parts too."""

    time: float
    calls: float
    moved: float
    kernels: list[str]
    fused: float
    values: Values


def executors_of(side: Side) -> tuple[str, ...] | None:
    """Thunder's executors that a side was asked for, () for Thunder's own list; None where that is not known."""
    return side.manifest.settings.executors if side.manifest is not None else None


def winners(first: Side, second: Side, rule: VerdictRule) -> list[PartWinner]:
    """The parts of two sides that differ in executors, the largest first; none of other sides or without profiles."""
    one, other = executors_of(first), executors_of(second)
    if one is None or other is None or one == other or not (first.has_times and second.has_times):
        return []
    amounts = _amounts(first), _amounts(second)
    whole = [sum(a.time for a in side.values()) for side in amounts]
    parts = sorted(
        (p for p in dict.fromkeys([*amounts[0], *amounts[1]]) if _share(p, amounts, whole) >= LEAST_SHARE),
        key=lambda p: -max(side[p].time for side in amounts if p in side),
    )
    weighed = [_weighed(part, amounts, rule) for part in parts]
    judged = verdicts.correct(
        [w.tested.judgement for w in weighed], rule.resolution, (), [w.differences for w in weighed]
    )
    labels = first.label, second.label
    made = []
    for part, w, judgement in zip(parts, weighed, judged, strict=True):
        pair = amounts[0].get(part), amounts[1].get(part)
        best = {verdicts.BETTER: 1, verdicts.WORSE: 0}.get(judgement.verdict)
        made.append(
            PartWinner(
                pass_=part[0],
                module=part[1],
                operator=part[2],
                kernels=[a.kernels if a else [] for a in pair],
                tested=msgspec.structs.replace(w.tested, judgement=judgement),
                best="" if best is None else labels[best],
                why=why(pair[best], pair[1 - best]) if best is not None else _same(pair),
            )
        )
    return made


def _share(part: Part, found: Sequence[Mapping[Part, Amounts]], whole: Sequence[float]) -> float:
    return max(side[part].time / w if part in side and w else 0.0 for side, w in zip(found, whole, strict=True))


def _amounts(side: Side) -> dict[Part, Amounts]:
    """Return the work of a side for each part."""
    assert side.places is not None and side.frame is not None and side.judged is not None
    lines, steps = side.places.lines, max(side.steps, 1)
    module = lines["module"].fillna("").map(without_numbers)
    keyed = lines.assign(module=module, operator=lines["operator"].fillna(nodes.NO_OPERATOR))
    names = side.frame["short_name"].fillna(side.frame["name"]).to_numpy(object)
    found = {}
    for key, group in keyed.groupby(["pass", "module", "operator"], sort=False):
        by_kind = np.bincount(group["kind"], weights=group["share"], minlength=side.places.kinds)
        share = by_kind[side.places.kind]
        there = share > 0
        time = side.judged.time * share
        fused = np.isin(side.places.kind, group["kind"][group["fused"]])
        by_name: dict[str, float] = {}
        for name, ns in zip(names[there], time[there], strict=True):
            by_name[str(name)] = by_name.get(str(name), 0.0) + ns
        part = tuple(map(str, key))  # type: ignore[arg-type]
        found[(part[0], part[1], part[2])] = Amounts(
            time=float(time.sum()) / steps,
            calls=float(there.sum()) / steps,
            moved=float((side.judged.bytes * share)[there].sum()) / steps,
            kernels=sorted(by_name, key=lambda n: -by_name[n]),
            fused=float(time[fused].sum() / time.sum()) if time.sum() else 0.0,
            values=side.per_unit(time),
        )
    return found


def _weighed(part: Part, found: Sequence[Mapping[Part, Amounts]], rule: VerdictRule) -> Weighed:
    one, other = found[0].get(part), found[1].get(part)
    metric = " · ".join(filter(None, part))
    shown = one.time if one else None, other.time if other else None
    if one is None or other is None:
        return untested(metric, "ns", shown, "only one side has it")
    if not one.values.values or not other.values.values:
        return untested(metric, "ns", shown, "the profile marks no steps", one.values.unit)
    return weigh(metric, "ns", one.values, other.values, rule, shown)


def why(best: Amounts | None, other: Amounts | None) -> str:
    """Why the first is faster, in words, by what the kernels of both do."""
    assert best is not None and other is not None
    reasons = []
    if best.fused >= 0.5 > other.fused:
        reasons.append(f"fused with other parts into {best.kernels[0]}")
    if best.calls < LESS * other.calls:
        reasons.append(f"{best.calls:.3g} calls in the place of {other.calls:.3g}")
    if best.moved < LESS * other.moved:  # false where either is unknown
        reasons.append(f"moves {units.text(best.moved, 'B')} in the place of {units.text(other.moved, 'B')}")
    if reasons:
        return "; ".join(reasons)
    if best.kernels == other.kernels:
        return "the same kernels, which run faster there"
    return f"{best.kernels[0]} is faster at the same work than {other.kernels[0]}"


def _same(pair: Sequence[Amounts | None]) -> str:
    one, other = pair
    return "the same kernels" if one and other and one.kernels == other.kernels else ""
