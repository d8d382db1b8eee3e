"""A training log as a page, as CSV, and as TensorBoard scalars."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfkit import units
from perfkit.analysis.training import ACCURACY, BASELINES, LOSS, NORM, RATE, VALIDATION, Training, TrainingCurve
from perfkit.render.cells import Cell, PageColumn, Table, clean, table, words
from perfkit.render.page import Page, Section
from perfkit.render.pages.figures import Figure, Series
from perfkit.render.scalars import Scalar
from perfkit.render.textplot import number, sparkline

_MOST_POINTS = 2000  # of a line in a figure: more than a screen has columns
TAGS = {VALIDATION: "loss/validation", LOSS: "loss/training", ACCURACY: "eval/hellaswag", RATE: "lr", NORM: "norm"}


def page(training: Training) -> Page:
    """Losses, accuracy, learning rate and norm, against OpenAI's models."""
    by_quantity = {s.quantity: s for s in training.quantities}
    sections = [Section(table=_quantities(training), notes=[f"! {w}" for w in training.warnings])]
    losses = [by_quantity[q] for q in (VALIDATION, LOSS) if q in by_quantity]
    if losses:
        lines = [_line(s) for s in losses] + _levels(training, 0 if VALIDATION in by_quantity else None)
        sections.append(Section(figures=[_figure("Loss", "loss", lines)]))
    if ACCURACY in by_quantity:
        lines = [_line(by_quantity[ACCURACY]), *_levels(training, 1)]
        sections.append(Section(figures=[_figure("HellaSwag", "accuracy", lines)]))
    for quantity in (RATE, NORM):
        if quantity in by_quantity:
            title = by_quantity[quantity].name.capitalize()
            sections.append(
                Section(figures=[_figure(title, by_quantity[quantity].name, [_line(by_quantity[quantity])])])
            )
    if {VALIDATION, ACCURACY} & set(by_quantity):
        sections.insert(1, Section(table=_baselines(training)))
    first, last = training.steps
    return Page(
        title=f"{clean(training.title)}: training log",
        settings=[f"steps {first:,} to {last:,}"],
        verdict=list(_verdict(training)),
        bad=any(s.not_finite for s in training.quantities),
        sections=sections,
    )


def _verdict(training: Training) -> Iterator[str]:
    known = {s.quantity: s for s in training.quantities}
    for quantity, place, step_of in ((VALIDATION, 0, "validation_step"), (ACCURACY, 1, "accuracy_step")):
        s = known.get(quantity)
        if s is None or s.best is None:
            continue
        reached = [b.model for b in training.baselines if getattr(b, step_of) is not None]
        beside = "above all of OpenAI's models" if quantity == VALIDATION else "below all of OpenAI's models"
        if reached:
            beside = f"that of OpenAI's {reached[-1]} ({BASELINES[reached[-1]][place]:.3f}) and better"
        yield f"Best {s.name} {_text(s.best)} at step {s.best_step:,}: {beside}."
    if VALIDATION not in known and LOSS in known:
        s = known[LOSS]
        yield f"Training loss from {_text(s.first)} to {_text(s.last)}, at best {_text(s.best)}."


def _quantities(training: Training) -> Table:
    rows = training.quantities
    return table(
        "What was logged",
        words("quantity", [s.name for s in rows], ["strong"] * len(rows), name=True),
        PageColumn("values", tuple(Cell(f"{len(s.values):,}") for s in rows)),
        PageColumn("first", tuple(Cell(_text(s.first)) for s in rows)),
        PageColumn("last", tuple(Cell(_text(s.last)) for s in rows)),
        PageColumn("best", tuple(Cell(_text(s.best)) for s in rows)),
        PageColumn("at step", tuple(Cell(_step(s.best_step)) for s in rows)),
        words("course", [sparkline([v for _, v in s.values], 32) for s in rows]),
    )


def _baselines(training: Training) -> Table:
    rows = training.baselines
    return table(
        "Against OpenAI's GPT-2",
        words("model", [b.model for b in rows], name=True),
        PageColumn("validation loss", tuple(Cell(f"{b.validation:.6f}") for b in rows)),
        PageColumn("reached at step", tuple(_reached(b.validation_step) for b in rows)),
        PageColumn("HellaSwag", tuple(Cell(f"{b.accuracy:.6f}") for b in rows)),
        PageColumn("reached at step", tuple(_reached(b.accuracy_step) for b in rows)),
        notes=["Their losses are as llm.c measures them on FineWeb: comparable with a log of the same data alone."],
    )


def _step(step: int | None) -> str:
    return units.ABSENT if step is None else f"{step:,}"


def _reached(step: int | None) -> Cell:
    return Cell("not reached", "dim") if step is None else Cell(f"{step:,}", "good")


def _text(value: float | None) -> str:
    if value is None:
        return units.ABSENT
    return number(value) if math.isfinite(value) else str(value)


def _line(summary: TrainingCurve) -> Series:
    """The values, thinned evenly where there are more than a figure shows; the last one stays."""
    finite = [(step, value) for step, value in summary.values if math.isfinite(value)]
    step = math.ceil(len(finite) / _MOST_POINTS) or 1
    kept = finite[::step] + (finite[-1:] if finite and (len(finite) - 1) % step else [])
    return Series(name=summary.name, x=[float(s) for s, _ in kept], y=[v for _, v in kept])


def _levels(training: Training, place: int | None) -> list[Series]:
    """OpenAI's models as level lines."""
    if place is None:
        return []
    ends = [float(step) for step in training.steps]
    return [Series(name=f"OpenAI {model}", x=ends, y=[BASELINES[model][place]] * 2, line="dash") for model in BASELINES]


def _figure(title: str, y: str, series: list[Series]) -> Figure:
    return Figure(title=title, x="step", y=y, series=series)


def csv(training: Training) -> str:
    """One row a step, one column a quantity; empty where a step has no value."""
    columns = [s.quantity for s in training.quantities]
    rows: dict[int, dict[str, float]] = {}
    for s in training.quantities:
        for step, value in s.values:
            rows.setdefault(step, {})[s.quantity] = value
    lines = [",".join(["step", *(s.name.replace(" ", "_") for s in training.quantities)])]
    for step in sorted(rows):
        lines.append(",".join([str(step), *(repr(rows[step][c]) if c in rows[step] else "" for c in columns)]))
    return "\n".join(lines) + "\n"


def scalars(training: Training) -> Iterator[Scalar]:
    """Every value by its tag and step, for TensorBoard."""
    for s in training.quantities:
        yield from ((TAGS[s.quantity], step, value) for step, value in s.values)
