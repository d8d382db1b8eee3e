"""The phases of generating tokens: how long the first token takes, how long each further one, and what bounds them."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.analysis.results import Report
from perfkit.render.cells import Table, figures, table, words

NOTE = (
    "A pass is one run of the model: over the prompt, or for one token. Its roof reads weights and cache once; "
    "slow is the 99th percentile."
)


def phases_tables(report: Report) -> Iterator[Table]:
    """One table of all backends whose steps generate tokens; nothing where none do."""
    rows = [(backend.name, phase) for backend in report.backends for phase in backend.phases]
    if not rows:
        return
    phases = [phase for _, phase in rows]
    yield table(
        "Generation",
        words("backend", [name for name, _ in rows], name=True),
        words("phase", [phase.name for phase in phases]),
        figures("passes", [phase.runs for phase in phases], "count"),
        figures("pass", [phase.time.value for phase in phases], "ns"),
        figures("slow", [phase.slow_ns for phase in phases], "ns"),
        figures("tokens/s", [phase.tokens_per_second for phase in phases], ""),
        figures("a user", [phase.user_tokens_per_second for phase in phases], "", priority=1),
        figures("weights", [phase.weight_bytes for phase in phases], "B", priority=3),
        figures("cache", [phase.cache_bytes for phase in phases], "B", priority=2),
        figures("work", [phase.flop for phase in phases], "FLOP", priority=2),
        figures("roof", [phase.roof_ns for phase in phases], "ns", priority=1),
        words("bound by", [phase.bound for phase in phases], priority=3),
        figures("eff.", [phase.efficiency for phase in phases], "%"),
        figures("headroom", [phase.headroom_ns for phase in phases], "ns", priority=2),
        notes=[NOTE],
    )
