"""Sentences about the efficiency at the most ranks: the largest cost first, then the communication."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.scale.results import Prediction, ScaleReport


def sentences(report: ScaleReport) -> Iterator[str]:
    """One of each way and scaling, at the most ranks."""
    for scaling in dict.fromkeys(point.scaling for point in report.points):
        for way in dict.fromkeys(point.parallel for point in report.points):
            mine = [p for p in report.points if (p.scaling, p.parallel) == (scaling, way)]
            if mine:
                yield _sentence(max(mine, key=lambda point: point.ranks), report.step_ns)


def _sentence(point: Prediction, alone_ns: float) -> str:
    said = f"{point.parallel} on {point.ranks} ranks, {point.scaling} scaling: {point.efficiency:.0%} efficient."
    step = f" of a step of {units.text(point.step_ns, 'ns')}"
    what, most = max(_costs(point, alone_ns).items(), key=lambda cost: cost[1])
    if most > point.exposed_ns:
        said += f" {units.text(most, 'ns')} are {what}, {most / point.step_ns:.0%}{step}."
        step = ""  # once is enough
    return (
        f"{said} Of {units.text(point.communication_ns, 'ns')} of communication {units.text(point.exposed_ns, 'ns')} "
        f"are not covered, {point.exposed_ns / point.step_ns:.0%}{step}."
    )


def _costs(point: Prediction, alone_ns: float) -> dict[str, float]:
    """Return the costs besides communication that a rank has on top of its part of the step of one: name → ns."""
    strong = point.scaling == "strong"
    return {
        f"host work that {point.parallel} is assumed to add": point.host_ns,
        f"copies that {point.parallel} adds": point.added_ns - point.host_ns,
        "computation that does not shrink with the batch": point.compute_ns - alone_ns / point.ranks if strong else 0.0,
    }
