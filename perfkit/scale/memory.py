"""Predict the memory of a rank from that of the measured one."""

from __future__ import annotations

from perfkit.scale.one_rank import OneRank, unit_of

_STATES = 2  # tensors of the optimizer a parameter: Adam's moments

ASSUMED = (
    "Memory: the optimizer holds two states a parameter in the model's precision (Adam); gradients of ddp stay in "
    "their buckets; fsdp holds two gathered units and its parts; the rest grows with a rank's batch."
)


def peak_bytes(one: OneRank, parallel: str, ranks: int, share: float) -> float | None:
    """Bytes of a rank at its peak; None where the measured rank's are not known."""
    peak = one.backend.peak_memory_bytes
    if peak is None:
        return None
    before = _kept(one, one.way, 1)
    return _kept(one, parallel, ranks) + max(peak - before, 0.0) * share


def _kept(one: OneRank, way: str, ranks: int) -> float:
    """Bytes that do not grow with the batch. Alone, gradients come and go: they are counted with what does."""
    weights, gradients = one.parameter_bytes, one.gradient_bytes
    states = _STATES * gradients
    if not way:
        return weights + states
    if way == "ddp":
        return weights + states + gradients
    if way == "zero1":
        return weights + gradients + (states + gradients) / ranks
    return (weights + states + gradients) / ranks + 2 * _largest_unit(one)


def _largest_unit(one: OneRank) -> float:
    sizes: dict[int, float] = {}
    for parameter in one.parameters:
        unit = unit_of(parameter.name, one.rows)
        sizes[unit] = sizes.get(unit, 0.0) + parameter.bytes
    return max(sizes.values(), default=0.0)
