"""Fusion headroom as a table: fusible kernels as they ran, as predicted when fused, and as the compiler fused them."""

from __future__ import annotations

from perfkit import units
from perfkit.analysis.results import BackendReport, Fusion
from perfkit.render.cells import Table, clean, column_scale, figures, table, words

_SHOWN = 3


def fusion(backend: BackendReport) -> Table | None:
    """The prediction of `backend` beside what was achieved; None without a compiled backend to compare with."""
    said = backend.fusion
    if said is None or not said.achieved_by:
        return None
    parts = said.parts
    scale = column_scale([t for p in parts for t in (p.time_ns, p.predicted_ns, p.achieved_ns)], "ns")
    by = clean(said.achieved_by, 40)
    return table(
        f"Fusion headroom of {clean(backend.name, 40)}: fusible kernels, one by one and fused",
        words("pass", [p.name for p in parts]),
        figures("kernels", [p.kernels for p in parts], "count"),
        figures("time", [p.time_ns for p in parts], "ns", scale=scale),
        figures("predicted", [p.predicted_kernels for p in parts], "count"),
        figures("fused", [p.predicted_ns for p in parts], "ns", ["strong"] * len(parts), scale=scale),
        figures(by, [p.achieved_kernels for p in parts], "count"),
        figures("took", [p.achieved_ns for p in parts], "ns", ["strong"] * len(parts), scale=scale),
        words("", [clean(p.why, 120) for p in parts], priority=2),
        notes=[_step(said, by), *_groups(said)],
    )


def _groups(said: Fusion) -> list[str]:
    """The groups on which fusing saves most."""
    shown = [
        f"{g.count:,.3g} × {clean(g.name, 120)}, {units.text(g.time_ns, 'ns')} → {units.text(g.predicted_ns, 'ns')}"
        for g in said.groups[:_SHOWN]
    ]
    return [f"Of it: {'; '.join(shown)}."] if shown else []


def _step(said: Fusion, by: str) -> str:
    """The whole step: predicted and achieved, and what the prediction is about."""
    achieved = "" if said.achieved_step_ns is None else f"; {by} took {units.text(said.achieved_step_ns, 'ns')}"
    return (
        f"The step takes {units.text(said.step_ns, 'ns')}; with these kernels fused, and "
        f"{units.text(said.launch_ns, 'ns')} between them gone, {units.text(said.predicted_step_ns, 'ns')} are "
        f"predicted{achieved}. What a compiler changes elsewhere (products, the optimizer, the framework's own time) "
        "is not predicted."
    )
