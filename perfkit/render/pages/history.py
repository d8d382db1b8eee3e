"""A metric over saved records as a page: a figure with its levels, and a table of the steps it made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfkit import units
from perfkit.compare.history import HistoryLine
from perfkit.render.cells import Cell, PageColumn, Table, clean, column_scale, figures, table, words
from perfkit.render.page import Page, Section
from perfkit.render.pages.figures import Figure, Series

_UNITS = {"memory": "B", "efficiency": "%"}
FEW = 4  # records that no test could see a step in


def page_of(metric: str, lines: Sequence[HistoryLine]) -> Page:
    """The page for `perfkit baseline history`."""
    unit = _UNITS.get(metric, "ns")
    scale = column_scale([v for line in lines for v in line.values], unit)
    steps = [line for line in lines if line.steps]
    sections = [Section(figures=[_figure(metric, lines, scale)])]
    if steps:
        sections.append(Section(table=_steps(steps, unit)))
    sections.append(Section(table=_records(lines, unit)))
    return Page(title=clean(f"{metric} over saved records"), verdict=list(_sentences(metric, lines)), sections=sections)


def _sentences(metric: str, lines: Sequence[HistoryLine]) -> Iterator[str]:
    for line in lines:
        name = clean(line.name)
        for step in line.steps:
            yield f"{name}: {metric} changed by {step.after / step.before - 1:+.1%} at {step.when}."
        if not line.steps:
            n = len(line.values)
            few = ": too few to show a step" if n < 2 * FEW else ""
            yield f"{name}: no step shown in {n} record{'s' * (n != 1)}{few}."
        if line.machines > 1:
            yield f"{name}: its records are from {line.machines} different machines; a step may be one of machines."


def _figure(metric: str, lines: Sequence[HistoryLine], scale: units.Scale) -> Figure:
    series = []
    for line in lines:
        numbers = [v / scale.factor for v in line.values]
        series.append(
            Series(name=clean(line.name), x=[float(i + 1) for i in range(len(numbers))], y=numbers, line="points")
        )
        edges = [0, *(s.index for s in line.steps), len(numbers)]
        levels = [line.steps[0].before, *(s.after for s in line.steps)] if line.steps else []
        for start, end, level in zip(edges[:-1], edges[1:], levels, strict=False):
            series.append(
                Series(name=f"level from {start + 1}", x=[start + 1.0, float(end)], y=[level / scale.factor] * 2)
            )
    return Figure(title=clean(metric), x="record, the oldest first", y=scale.suffix or "share", series=series)


def _steps(lines: Sequence[HistoryLine], unit: str) -> Table:
    rows = [(line, step) for line in lines for step in line.steps]
    scale = column_scale([v for _, s in rows for v in (s.before, s.after)], unit)
    return table(
        "Steps",
        words("baseline", [line.name for line, _ in rows], name=True),
        words("since", [s.when for _, s in rows]),
        figures("record", [float(s.index + 1) for _, s in rows], "count"),
        figures("before", [s.before for _, s in rows], unit, scale=scale),
        figures("after", [s.after for _, s in rows], unit, scale=scale),
        PageColumn("change", tuple(Cell(f"{s.after / s.before - 1:+.1%}") for _, s in rows)),
    )


def _records(lines: Sequence[HistoryLine], unit: str) -> Table:
    rows = [(line, i) for line in lines for i in range(len(line.values))]
    return table(
        "Records",
        words("baseline", [line.name for line, _ in rows], name=True),
        figures("record", [float(i + 1) for _, i in rows], "count"),
        words("saved", [line.when[i] for line, i in rows]),
        figures("value", [line.values[i] for line, i in rows], unit),
    )
