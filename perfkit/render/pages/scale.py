"""Page of a step predicted on more ranks: a table for each scaling, efficiency by ranks, and the assumptions."""

from __future__ import annotations

from perfkit import units
from perfkit.render.cells import Cell, PageColumn, Table, clean, figures, table, words
from perfkit.render.page import Page, Section
from perfkit.render.pages.figures import Figure, Series
from perfkit.scale import verdict
from perfkit.scale.results import Prediction, ScaleReport

_SAID = {
    "weak": "Weak scaling: each rank has the measured batch",
    "strong": "Strong scaling: all ranks share the batch",
}


def page(report: ScaleReport) -> Page:
    """The page of `perfkit scale`."""
    scalings = list(dict.fromkeys(point.scaling for point in report.points))
    sections = []
    for scaling in scalings:
        mine = [point for point in report.points if point.scaling == scaling]
        drawn = [_efficiency(mine)] if len({point.ranks for point in mine}) > 1 else []
        sections.append(Section(table=_table(report, mine, _SAID[scaling]), figures=drawn))
    said = [clean(line, 600) for line in (*report.links, *report.assumptions)]
    notes = [f"! {clean(problem, 600)}" for problem in report.problems]
    sections.append(Section(notes=["", "What is assumed", *(f"· {line}" for line in said), *notes]))
    return Page(
        title=f"{clean(report.title)} on more ranks, predicted from one",
        settings=[
            f"{report.backend}, {report.dtype}",
            clean(report.device),
            f"step of one rank {units.text(report.step_ns, 'ns')}",
            units.many(report.parameters, "parameter"),
        ],
        verdict=list(verdict.sentences(report)),
        sections=sections,
    )


def _table(report: ScaleReport, rows: list[Prediction], title: str) -> Table:
    return table(
        title,
        words("way", [row.parallel for row in rows], ["strong"] * len(rows), name=True),
        PageColumn("ranks", tuple(Cell(f"{row.ranks:,}") for row in rows)),
        PageColumn("hosts", tuple(Cell(f"{row.hosts:,}") for row in rows)),
        figures("step", [row.step_ns for row in rows], "ns"),
        figures("computation", [row.compute_ns for row in rows], "ns"),
        figures("added", [row.added_ns for row in rows], "ns"),
        figures("collectives", [row.communication_ns for row in rows], "ns"),
        figures("exposed", [row.exposed_ns for row in rows], "ns"),
        figures(f"{report.sample_name}/s", [row.samples_per_second for row in rows], ""),
        figures("efficiency", [row.efficiency for row in rows], "%"),
        figures("memory", [row.memory_bytes for row in rows], "iB"),
        notes=[
            "A step is computation, what the way adds (copies; host work of fsdp), and exposed communication. "
            "Efficiency: throughput over that of as many single ranks. Memory is a rank's."
        ],
    )


def _efficiency(rows: list[Prediction]) -> Figure:
    series = []
    for way in dict.fromkeys(row.parallel for row in rows):
        mine = sorted((row for row in rows if row.parallel == way), key=lambda row: row.ranks)
        series.append(Series(name=way, x=[float(r.ranks) for r in mine], y=[100 * r.efficiency for r in mine]))
    ticks = sorted({float(row.ranks) for row in rows})
    return Figure(title="efficiency", x="ranks", y="%", series=series, log_x=True, x_ticks=ticks)
