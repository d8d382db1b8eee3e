"""The iterations of a serving engine as a table."""

from __future__ import annotations

from perfkit.analysis.step_results import ServingPhase
from perfkit.render.cells import Table, column_scale, figures, table, words

NOTES = (
    "An iteration is one run of the engine's model over a batch, as the engine marks it: mixed ones read prompts and "
    "generate. Batch is the requests of an iteration; context the tokens in the cache that an iteration reads, over "
    "all its requests.",
    "Time is the GPU's, from an iteration's first kernel to the first one of the next; slow is the 99th percentile. "
    "Tokens are those that are read or fed in: without speculation a request that generates makes one an iteration.",
    "Weights are the second matrices of products, cache the keys and values that attention reads, in an iteration; the "
    "roof reads both once, or takes the products at the peak of their precision where that is longer.",
)


def serving_table(phases: list[ServingPhase]) -> Table | None:
    """The phases side by side; None where the profile is of no serving engine."""
    if not phases:
        return None
    scale = column_scale([t for phase in phases for t in (phase.median_ns, phase.slow_ns)], "ns")
    return table(
        "Serving",
        words("phase", [phase.name for phase in phases], name=True),
        figures("iterations", [phase.iterations for phase in phases], "count"),
        words("batch", [_range(*phase.requests) for phase in phases]),
        figures("context", [phase.context for phase in phases], "count", priority=1),
        figures("prompt tokens", [phase.prompt_tokens for phase in phases], "count"),
        figures("new tokens", [phase.new_tokens for phase in phases], "count"),
        figures("time", [phase.median_ns for phase in phases], "ns", scale=scale),
        figures("slow", [phase.slow_ns for phase in phases], "ns", scale=scale),
        figures("busy", [phase.busy for phase in phases], "%"),
        figures("tokens/s", [phase.tokens_per_second for phase in phases], ""),
        figures("weights", [phase.weight_bytes for phase in phases], "B", priority=2),
        figures("cache", [phase.cache_bytes for phase in phases], "B", priority=2),
        figures("roof", [phase.roof_ns for phase in phases], "ns", scale=scale),
        words("set by", [phase.bound for phase in phases], priority=2),
        notes=NOTES,
    )


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
