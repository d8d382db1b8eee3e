"""The iterations of a serving engine, by phase: time, tokens, and the bytes of weights and cache with their roof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.analysis import tensors
from perfkit.analysis.results import ServingPhase
from perfkit.engines import PHASES, Iteration, iteration_of
from perfkit.hardware.ceilings import Ceilings

if TYPE_CHECKING:
    import pandas as pd

SLOW = 99  # the percentile of a slow iteration
_MATRIX = "flop_matrix_"
_KNOWN = 0.99  # of the time of products, or of attention: less leaves the bytes of a phase unknown


def serving(
    facts: Mapping[str, Any], frame: pd.DataFrame | None = None, ceilings: Ceilings | None = None
) -> list[ServingPhase]:
    """Return the phases of the profile's iterations in `PHASES`' order; none if its steps are not iterations.

    Bytes and roof are known with `frame`, the rows of the table, and `ceilings`.
    """
    served = [iteration_of(name) for name in facts.get("step_names") or []]
    if not any(served):
        return []
    found = [
        (one, float(step), float(busy))
        for one, step, busy in zip(served, facts["step_ns"], facts["busy_ns"], strict=False)
        if one is not None
    ]
    phases = {phase: [row for row in found if row[0].phase == phase] for phase in PHASES}
    return [_phase(phase, rows, frame, ceilings) for phase, rows in phases.items() if rows]


def _phase(
    phase: str, rows: list[tuple[Iteration, float, float]], frame: pd.DataFrame | None, ceilings: Ceilings | None
) -> ServingPhase:
    """The figures of one phase."""
    iterations, times = [row[0] for row in rows], np.array([row[1] for row in rows])
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
        weight_bytes=weights,
        cache_bytes=cache,
        roof_ns=roof,
        bound=bound,
    )


def _sum(values: Any) -> int | None:
    """The sum; None where a value is unknown."""
    known = list(values)
    return None if None in known else sum(known)


def _mean(amounts: np.ndarray | None, count: int) -> float | None:
    return float(amounts.sum()) / count if amounts is not None and count else None


def weight_bytes(frame: pd.DataFrame) -> np.ndarray | None:
    """Return for each row the bytes of weights that it reads, the second matrix of a product.

    None where that is not known of nearly all products, such as batched ones, whose second matrix may be no weight.
    """
    return _operands(frame, "matmul", _weight)


def cache_bytes(frame: pd.DataFrame) -> np.ndarray | None:
    """Return for each row the bytes of keys and values that its attention reads; None where that is not known."""
    return _operands(frame, "attention", _keys_and_values)


def _weight(shapes: str) -> float | None:
    found = tensors.shapes(shapes)
    matrices = [size for (_, shape), size in zip(found, tensors.sizes(shapes), strict=True) if len(shape) == 2]
    return float(matrices[1]) if len(matrices) == 2 and all(len(shape) <= 2 for _, shape in found) else None


def _keys_and_values(shapes: str) -> float | None:
    found, sizes = tensors.shapes(shapes), tensors.sizes(shapes)
    fit = len(found) >= 3 and len(found[1][1]) >= 3 and found[1][1][:-1] == found[2][1][:-1]
    return float(sizes[1] + sizes[2]) if fit else None


def _operands(frame: pd.DataFrame, family: str, operand: Any) -> np.ndarray | None:
    """The bytes of an operand of the rows of a family. Of a call by several kernels each row has its part of them; one
    without bytes of its own helps another."""
    amounts, unknown, whole = np.zeros(len(frame)), 0.0, 0.0
    columns = (frame[name].to_numpy(object) for name in ("family", "shapes", "bytes_read", "duration_ns"))
    for at, (kind, shapes, read, time) in enumerate(zip(*columns, strict=True)):
        if kind != family:
            continue
        known = operand(shapes) if isinstance(shapes, str) else None
        whole += float(time)
        if known is None or not np.isfinite(read):
            unknown += float(time)
        else:
            amounts[at] = known * min(1.0, read / max(1.0, sum(tensors.sizes(shapes))))
    return amounts if whole and unknown <= (1 - _KNOWN) * whole else None


def _roof(
    frame: pd.DataFrame, weights: float | None, cache: float | None, count: int, ceilings: Ceilings
) -> tuple[float | None, str]:
    """The least time of an iteration in ns, and what sets it: weights and cache read once, or the products' FLOP."""
    if weights is None or cache is None or not ceilings.envelope():
        return None, ""
    memory = ceilings.memory_time(weights + cache, 0.0, weights + cache)[0] * 1e9
    matrix = product_time(frame, ceilings) / count
    return (matrix, "products") if matrix > memory else (memory, "memory")


def product_time(frame: pd.DataFrame, ceilings: Ceilings) -> float:
    """Return the least time of all products of `frame`, in ns."""
    columns = [name for name in frame.columns if name.startswith(_MATRIX)]
    rates = {name: ceilings.compute.get(name.removeprefix("flop_")) for name in columns}
    return sum(float(np.nansum(frame[name])) / rate * 1e9 for name, rate in rates.items() if rate)
