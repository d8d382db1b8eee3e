"""The iterations of a serving engine as a table, and over time as figures."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfkit.analysis.step_results import ServingPhase
from perfkit.render.cells import Table, column_scale, figures, table, words
from perfkit.render.page import WHOLE, Section
from perfkit.render.pages.figures import Figure, Series
from perfkit.render.report import About
from perfkit.units import Scale

AFTER = "roofline"
_MOST_POINTS = 2000  # of a phase in a figure
_WIDE = 20  # times the least value: from here on an axis is logarithmic
NOTES = (
    "An iteration is one run of the engine's model over a batch, as the engine marks it: mixed ones read prompts and "
    "generate. Batch is the requests of an iteration; context the tokens in the cache that an iteration reads, over "
    "all its requests.",
    "Time is the GPU's, from an iteration's first kernel to the first one of the next; slow is the 99th percentile. "
    "Tokens are those that are read or fed in: without speculation a request that generates makes one an iteration.",
    "Between tokens is the time from a request's token to its next one, by the iterations in between (the median, and "
    "the 99th percentile), where each request that runs is served in every iteration that generates. It is of the "
    "GPU's work: what follows on the host is not in it. The time to first token is unknown, for no engine marks when a "
    "request arrives: it is at least that of the iteration that reads the prompt.",
    "Weights are the second matrices of products, cache the keys and values that attention reads, in an iteration; the "
    "roof reads both once, or takes the products at the peak of their precision where that is longer.",
)


def sections(about: About) -> Iterator[Section]:
    """Yield the table of the phases, and the figures."""
    phases = about.backend.serving
    yield Section(table=serving_table(phases))
    if figures := serving_figures(phases):
        yield Section(title="Serving over time", figures=figures, fold=WHOLE)


def serving_table(phases: list[ServingPhase]) -> Table:
    """The phases side by side."""
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
        figures("between tokens", [phase.token_ns for phase in phases], "ns", scale=scale, priority=1),
        figures("slow token", [phase.token_slow_ns for phase in phases], "ns", scale=scale, priority=1),
        figures("tokens/s", [phase.tokens_per_second for phase in phases], ""),
        figures("weights", [phase.weight_bytes for phase in phases], "B", priority=2),
        figures("cache", [phase.cache_bytes for phase in phases], "B", priority=2),
        figures("roof", [phase.roof_ns for phase in phases], "ns", scale=scale),
        words("set by", [phase.bound for phase in phases], priority=2),
        notes=NOTES,
    )


def serving_figures(phases: list[ServingPhase]) -> list[Figure]:
    """Iterations over time: how long each took, and its tokens, by phase; none of fewer than two."""
    if sum(phase.iterations for phase in phases) < 2:
        return []
    whole = max(begin for phase in phases for begin in phase.begins_ns)
    at, took = (column_scale(found, "ns") for found in ([whole], [t for phase in phases for t in phase.times_ns]))
    figures = [_figure("Iterations over time", f"time ({took.suffix})", at, phases,
                       [[t / took.factor for t in phase.times_ns] for phase in phases])]  # fmt: skip
    if all(None not in phase.tokens for phase in phases):
        tokens = [[float(n or 0) for n in phase.tokens] for phase in phases]
        figures.append(_figure("Tokens of each iteration", "tokens", at, phases, tokens))
    return figures


def _figure(title: str, y: str, at: Scale, phases: list[ServingPhase], values: list[list[float]]) -> Figure:
    """Points of each phase, thinned evenly where there are more than a figure shows."""
    series = []
    for phase, own in zip(phases, values, strict=True):
        every = math.ceil(len(own) / _MOST_POINTS)
        x = [begin / at.factor for begin in phase.begins_ns]
        series.append(Series(name=phase.name, x=x[::every], y=own[::every], line="points"))
    shown = [v for own in values for v in own]
    return Figure(title=title, x=f"begin ({at.suffix})", y=y, series=series,
                  log_y=min(shown) > 0 and max(shown) > _WIDE * min(shown))  # fmt: skip


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
