"""The iterations of a serving engine, by phase: time, tokens, and the bytes of weights and cache with their roof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfkit.analysis.model_bytes import cache_bytes, product_time, weight_bytes
from perfkit.analysis.report.latency import Waits, median_and_slow, token_waits
from perfkit.analysis.roofline.roof import Reals
from perfkit.analysis.step_results import ServingPhase
from perfkit.engines import PHASES, Iteration, iteration_of
from perfkit.hardware.ceilings import Ceilings

if TYPE_CHECKING:
    import pandas as pd

SLOW = 99  # the percentile of a slow iteration


def serving(
    facts: Mapping[str, Any], frame: pd.DataFrame | None = None, ceilings: Ceilings | None = None
) -> list[ServingPhase]:
    """Return the phases of the profile's iterations in `PHASES`' order; none if its steps are not iterations.

    Bytes and roof are known with `frame`, the rows of the table, and `ceilings`.
    """
    served = [iteration_of(name) for name in facts.get("step_names") or []]
    if not any(served):
        return []
    times = [float(step) for step in facts["step_ns"]]
    begins = np.cumsum([0.0, *times]).tolist()
    found = [
        _Iteration(one, begin, time, float(busy), waits)
        for one, begin, time, busy, waits in zip(
            served, begins, times, facts["busy_ns"], token_waits(served, times), strict=False
        )
        if one is not None
    ]
    phases = {phase: [row for row in found if row.served.phase == phase] for phase in PHASES}
    return [_phase(phase, rows, frame, ceilings) for phase, rows in phases.items() if rows]


class _Iteration(NamedTuple):
    """One iteration: its begin, time and busy time in ns, and how long its tokens were waited for."""

    served: Iteration
    begin: float
    time: float
    busy: float
    waits: Waits


def _phase(phase: str, rows: list[_Iteration], frame: pd.DataFrame | None, ceilings: Ceilings | None) -> ServingPhase:
    """The figures of one phase."""
    iterations, times = [row.served for row in rows], np.array([row.time for row in rows])
    token, slow_token = median_and_slow([row.waits for row in rows])
    prompt, new = _sum(i.prompt_tokens for i in iterations), _sum(i.new_tokens for i in iterations)
    tokens = None if prompt is None or new is None else prompt + new
    context, whole = _sum(i.context for i in iterations), float(times.sum())
    mine = frame[frame["pass"] == phase] if frame is not None else None
    weights = _mean(weight_bytes(mine), len(rows)) if mine is not None else None
    cache = _mean(cache_bytes(mine), len(rows)) if mine is not None else None
    roof, bound = _roof(mine, weights, cache, len(rows), ceilings) if mine is not None and ceilings else (None, "")
    return ServingPhase(
        name=phase,
        iterations=len(rows),
        prompts=_sum(None if i.unsplit else i.prompts for i in iterations),
        requests=(min(i.requests for i in iterations), max(i.requests for i in iterations)),
        prompt_tokens=prompt,
        new_tokens=new,
        context=None if context is None else context / len(rows),
        median_ns=float(np.median(times)),
        slow_ns=float(np.percentile(times, SLOW)),
        time_ns=whole,
        busy=sum(row.busy for row in rows) / whole if whole else None,
        tokens_per_second=tokens / whole * 1e9 if tokens is not None and whole else None,
        weight_bytes=weights,
        cache_bytes=cache,
        roof_ns=roof,
        bound=bound,
        token_ns=token,
        token_slow_ns=slow_token,
        begins_ns=[row.begin for row in rows],
        times_ns=times.tolist(),
        tokens=[_sum((iteration.prompt_tokens, iteration.new_tokens)) for iteration in iterations],
    )


def _sum(values: Any) -> int | None:
    """The sum; None where a value is unknown."""
    known = list(values)
    return None if None in known else sum(known)


def _mean(amounts: Reals | None, count: int) -> float | None:
    return float(amounts.sum()) / count if amounts is not None and count else None


def _roof(
    frame: pd.DataFrame, weights: float | None, cache: float | None, count: int, ceilings: Ceilings
) -> tuple[float | None, str]:
    """The least time of an iteration in ns, and what sets it: weights and cache read once, or the products' FLOP."""
    if weights is None or cache is None or not ceilings.envelope():
        return None, ""
    memory = ceilings.memory_time(weights + cache, 0.0, weights + cache)[0] * 1e9
    matrix = product_time(frame, ceilings) / count
    return (matrix, "products") if matrix > memory else (memory, "memory")
