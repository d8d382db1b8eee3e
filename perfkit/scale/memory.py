"""What a rank holds, from what the measured one held."""

from __future__ import annotations

from perfkit.scale.one_rank import OneRank, unit_of

_STATES = 2  # tensors of the optimizer a parameter: Adam's moments

ASSUMED = (
    "Memory: the optimizer holds two states a parameter in the model's precision (Adam); gradients of ddp stay in "
    "their buckets; fsdp holds two gathered units beside its parts; the rest grows with a rank's batch."
)


def held(one: OneRank, parallel: str, ranks: int, share: float) -> float | None:
    """Bytes of a rank at its peak; None where the measured rank's are not known."""
    peak = one.backend.peak_memory_bytes
    if peak is None:
        return None
    weights, gradients = one.parameter_bytes, one.gradient_bytes
    states = _STATES * gradients
    rest = max(peak - weights - states, 0.0) * share
    if parallel == "ddp":
        return weights + states + gradients + rest
    if parallel == "zero1":
        return weights + gradients + (states + gradients) / ranks + rest
    return (weights + states + gradients) / ranks + 2 * _largest_unit(one) + rest


def _largest_unit(one: OneRank) -> float:
    sizes: dict[int, float] = {}
    for parameter in one.parameters:
        unit = unit_of(parameter.name, one.rows)
        sizes[unit] = sizes.get(unit, 0.0) + parameter.bytes
    return max(sizes.values(), default=0.0)
