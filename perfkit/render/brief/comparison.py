"""The brief answer about a comparison: the sides, the verdict with its interval, and the parts that changed most."""

from __future__ import annotations

import math
import shlex
from typing import Any

from perfkit.analysis.difference import PartChange
from perfkit.compare.results import Comparison, JudgedMetric, Pair, SideResult
from perfkit.render.brief.texts import FINDINGS, LONGEST_PATH, cropped, known
from perfkit.render.cells import clean


def answer(found: Comparison, length: int, rows: int) -> dict[str, Any]:
    """Return the answer with sentences of `length` characters, and at most `rows` sides and pairs."""
    left = {"sides": max(len(found.sides) - rows, 0), "pairs": max(len(found.pairs) - rows, 0)}
    made = {
        "of": "comparison",
        "measured": known({"title": cropped(found.title, length), "how": cropped(found.how, length)}),
        "verdict": [cropped(sentence, length) for sentence in found.verdict[:3]],
        "sides": [_side(side, length) for side in found.sides[:rows]],
        "pairs": [_pair(pair, min(rows, FINDINGS)) for pair in found.pairs[:rows]],
        "conditions": [{"text": clean(c.text, 80), "outcome": c.outcome} for c in found.conditions[:rows]],
        "unknown": [cropped(text, length) for text in [*found.differs, *found.notes][:FINDINGS]],
        "more": _more(found),
        "left_out": {name: count for name, count in left.items() if count} or None,
    }
    return known(made)


def _more(found: Comparison) -> list[str]:
    """The command that shows all of it: sides that were measured together are read again."""
    sources = {side.source for side in found.sides}
    again = ["perfkit", "compare", *sources] if len(sources) == 1 else [w for w in found.command if w != "--brief"]
    command = shlex.join([clean(word, LONGEST_PATH) for word in [*again, "--json"]])
    return [command] if len(again) > 1 and len(command) <= LONGEST_PATH else []


def _side(side: SideResult, length: int) -> dict[str, Any]:
    step = side.step
    return known(
        {
            "name": clean(side.label, 60), "status": side.status, "checked": side.checked,
            "reason": cropped(side.unusable or side.reason, length),
            "step_ns": [step.value, step.low, step.high] if step else None, "kernel_ns": side.kernel_ns,
            "peak_memory_bytes": side.peak_memory_bytes, "efficiency": side.efficiency,
        }
    )  # fmt: skip


def _pair(pair: Pair, rows: int) -> dict[str, Any]:
    changed = sorted(pair.tested, key=lambda one: -abs((one.second or 0.0) - (one.first or 0.0)))
    return known(
        {
            "first": clean(pair.first, 60), "second": clean(pair.second, 60), "step": _tested(pair.step),
            "parts": [_tested(one) for one in changed if one.first is not None and one.second is not None][:rows],
            "kernels": [_change(kernel) for kernel in pair.kernels[:rows]],
        }
    )  # fmt: skip


def _tested(one: JudgedMetric) -> dict[str, Any]:
    """A metric of both sides, the verdict, and the ratio with its interval where it was tested."""
    judgement = one.judgement
    ratio = [judgement.ratio, judgement.low, judgement.high]
    finite = all(value is not None and math.isfinite(value) for value in ratio)
    return known(
        {
            "metric": clean(one.metric, 60), "unit": one.unit, "first": one.first, "second": one.second,
            "verdict": judgement.verdict, "ratio": ratio if finite else None,
        }
    )  # fmt: skip


def _change(one: PartChange) -> dict[str, Any]:
    return known({"name": clean(one.key, 80), "first_ns": one.first_ns, "second_ns": one.second_ns})
