"""The iterations of a serving engine, by phase: how long they took, and how many tokens they read and made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from perfkit.analysis.results import ServingPhase
from perfkit.engines import PHASES, Iteration, iteration_of

SLOW = 99  # the percentile of a slow iteration


def serving(facts: Mapping[str, Any]) -> list[ServingPhase]:
    """Return the phases of the profile's iterations in `PHASES`' order; none if its steps are not iterations."""
    served = [iteration_of(name) for name in facts.get("step_names") or []]
    if not any(served):
        return []
    found = [
        (one, float(step), float(busy))
        for one, step, busy in zip(served, facts["step_ns"], facts["busy_ns"], strict=False)
        if one is not None
    ]
    phases = {phase: [row for row in found if row[0].phase == phase] for phase in PHASES}
    return [_phase(phase, rows) for phase, rows in phases.items() if rows]


def _phase(phase: str, rows: list[tuple[Iteration, float, float]]) -> ServingPhase:
    """The figures of one phase."""
    iterations, times = [row[0] for row in rows], np.array([row[1] for row in rows])
    prompt, new = _sum(i.prompt_tokens for i in iterations), _sum(i.new_tokens for i in iterations)
    tokens = None if prompt is None or new is None else prompt + new
    context, whole = _sum(i.context for i in iterations), float(times.sum())
    return ServingPhase(
        name=phase,
        iterations=len(rows),
        prompts=sum(i.prompts for i in iterations),
        requests=(min(i.prompts + i.generating for i in iterations), max(i.prompts + i.generating for i in iterations)),
        prompt_tokens=prompt,
        new_tokens=new,
        context=None if context is None else context / len(rows),
        median_ns=float(np.median(times)),
        slow_ns=float(np.percentile(times, SLOW)),
        time_ns=whole,
        busy=sum(row[2] for row in rows) / whole if whole else None,
        tokens_per_second=tokens / whole * 1e9 if tokens is not None and whole else None,
    )


def _sum(values: Any) -> int | None:
    """The sum; None where a value is unknown."""
    known = list(values)
    return None if None in known else sum(known)
