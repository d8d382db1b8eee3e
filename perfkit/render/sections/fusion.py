"""Fusion headroom as tables: fusible kernels as they ran, as predicted when fused, and as the compiler fused them; and
each kernel of the compiler as the operators that it replaces predict it, next to the time that it took."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.analysis.fusion_results import Fusion
from perfkit.analysis.results import BackendReport
from perfkit.analysis.words import number
from perfkit.render.cells import Table, clean, column_scale, figures, table, words
from perfkit.render.page import SCREEN, Section
from perfkit.render.report import About

AFTER = "accounting"
_SHOWN = 3
_ARITHMETIC = {
    "cuda": "the instructions of its loops take at the measured rate",
    "cpu": "the arithmetic of its operators took one by one",
}
_BEFORE = {"cuda": "bytes alone", "cpu": "eager's times and bytes"}
_KERNELS = 8


def sections(about: About) -> Iterator[Section]:
    """Yield the tables about fusion."""
    for made in fusion_tables(about.backend):
        yield Section(table=made, fold=SCREEN, view="fusion")


def fusion_tables(backend: BackendReport) -> list[Table]:
    """All tables about fusion that `backend` has."""
    return [made for made in (fusion(backend), fused_kernels(backend)) if made is not None]


def fusion(backend: BackendReport) -> Table | None:
    """The prediction of `backend` with what was achieved; None without a compiled backend to compare with."""
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


def fused_kernels(backend: BackendReport) -> Table | None:
    """Each fused kernel of the compiled backend, predicted from `backend`'s operators, and measured."""
    said = backend.fusion
    if said is None or not any(k.predicted_ns is not None for k in said.kernels):
        return None
    shown = said.kernels[:_KERNELS]
    by = clean(said.achieved_by, 40)
    scale = column_scale([t for k in shown for t in (k.eager_ns, k.predicted_ns, k.measured_ns)], "ns")
    ratios = [k.predicted_ns / k.measured_ns if k.predicted_ns and k.measured_ns else None for k in shown]
    return table(
        f"Fused kernels of {by}: predicted from {clean(backend.name, 40)}'s operators, and measured",
        words("operators", [f"{clean(k.pass_, 8)} {' → '.join(k.operators) or k.name}" for k in shown], name=True),
        figures("calls", [k.count for k in shown], "count", priority=1),
        figures("one by one", [k.eager_ns for k in shown], "ns", scale=scale),
        figures("predicted", [k.predicted_ns for k in shown], "ns", ["strong"] * len(shown), scale=scale),
        figures("took", [k.measured_ns for k in shown], "ns", ["strong"] * len(shown), scale=scale),
        words("ratio", ["–" if r is None else f"{r:.2f}" for r in ratios]),
        words("bound by", [k.bound for k in shown], priority=3),
        words("why they differ", [clean(k.why, 120) for k in shown], priority=2),
        notes=[_error(said, len(shown), backend.device), _two(backend.device), *_not_compared(said)],
    )


def _error(said: Fusion, shown: int, device: str) -> str:
    """Say how far the predictions are from the measurement, all kernels together."""
    rest = f"{len(said.kernels) - shown} more kernels. " if len(said.kernels) > shown else ""
    if said.kernels_error is None or said.kernels_known is None:
        return rest.strip()
    return (
        f"{rest}Weighted by time, the predictions are {said.kernels_error:.0%} off, for {said.kernels_known:.0%} of "
        "the time of fused kernels. A kernel is predicted to take what its bytes take at the measured bandwidth, or "
        f"what {_ARITHMETIC['cuda' if device == 'cuda' else 'cpu']}, whichever is longer."
    )


def _two(device: str) -> str:
    """Why the two tables predict the same fusion differently."""
    return (
        f"The table above predicts from {_BEFORE['cuda' if device == 'cuda' else 'cpu']}, before anything is compiled; "
        "this one from the loops that the compiler wrote."
    )


def _not_compared(said: Fusion) -> list[str]:
    """Say how many kernels have no time one by one, since eager does other work there, and why the longest has none."""
    apart = [k for k in said.kernels if k.apart]
    if not apart:
        return []
    ns = sum(k.measured_ns for k in apart)
    count = "1 kernel is" if len(apart) == 1 else f"{len(apart)} kernels are"
    most = max(apart, key=lambda k: k.measured_ns)
    what = "it does" if len(apart) == 1 else "they do"
    return [
        f"{count} not compared with operators one by one ({units.text(ns, 'ns')}): eager's time is not of the work "
        f"that {what}. The longest, {clean(most.name, 60)}: {clean(most.apart, 120)}."
    ]


def _groups(said: Fusion) -> list[str]:
    """The groups on which fusing saves most."""
    shown = [
        f"{number(g.count)} × {clean(g.name, 120)}, {units.text(g.time_ns, 'ns')} → {units.text(g.predicted_ns, 'ns')}"
        for g in said.groups[:_SHOWN]
    ]
    return [f"Of it: {'; '.join(shown)}."] if shown else []


def _step(said: Fusion, by: str) -> str:
    """The whole step: predicted and achieved, and what the prediction is about."""
    achieved = "" if said.achieved_step_ns is None else f"; {by} took {units.text(said.achieved_step_ns, 'ns')}"
    why = f" The difference: {', '.join(said.step_why)}." if said.step_why else ""
    return (
        f"The step takes {units.text(said.step_ns, 'ns')}; with these kernels fused, and "
        f"{units.text(said.launch_ns, 'ns')} between them gone, {units.text(said.predicted_step_ns, 'ns')} are "
        f"predicted{achieved}. What a compiler changes elsewhere (products, the optimizer, the framework's own time) "
        f"is not predicted.{why}"
    )
