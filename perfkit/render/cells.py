"""Tables for text: cells that are text already, with one scale a column.

A column knows its unit, so that the numbers in it stay bare and compare at a glance. `tone` says what a cell means
(good, fair, poor, bad, strong, dim); a renderer turns it into a colour where it has one; nothing is said by colour
alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfkit import units
from perfkit.analysis.words import apart

NAME_LIMIT = 160  # characters of a name that any text output shows
NOTE_LIMIT = 600  # characters of a note
_WHOLE = 0.99  # of the kernel time: a sum over kernels that take this share counts as one over all


@dataclass(frozen=True)
class Cell:
    """Text of one cell, and what it means."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class PageColumn:
    """One column; `priority` 0 is always shown, a higher one goes first where the width is short.

    `name` marks the column whose cells may be cropped; any other column of text with a `least` width, down to that.
    """

    header: str
    cells: tuple[Cell, ...]
    unit: str = ""
    numeric: bool = True
    priority: int = 0
    name: bool = False
    least: int = 0

    @property
    def title(self) -> str:
        """The header with its unit, on one line."""
        return f"{self.header} ({self.unit})" if self.unit and self.header else self.header or self.unit


@dataclass(frozen=True)
class Table:
    """A titled table. With `total` the last row sums up the others; `notes` stand under it. `in_text` is how many rows
    text shows of it, all where it is None."""

    title: str
    columns: tuple[PageColumn, ...]
    notes: tuple[str, ...] = ()
    total: bool = False
    in_text: int | None = None

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """The cells by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def of_text(self) -> Table:
        """The table as text shows it: its first rows, and how many there are more."""
        more = len(self.rows) - (self.in_text or len(self.rows))
        if more <= 0:
            return self
        columns = tuple(replace(column, cells=column.cells[: self.in_text]) for column in self.columns)
        note = f"{more} rows more are in the HTML and the JSON."
        return replace(self, columns=columns, notes=(*self.notes, note))


def clean(text: str, limit: int = NAME_LIMIT) -> str:
    """`text` on one line, safe to print: control, format and unpaired surrogate characters become escapes; cropped.

    The crop leaves the beginning and the end, because kernel names differ in both.
    """
    short = units.cropped(text, limit)
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


def clean_all(value: Any) -> Any:
    """Return plain data with all of its texts safe to print, and whole."""
    if isinstance(value, dict):
        return {clean(key, len(key)): clean_all(one) for key, one in value.items()}
    if isinstance(value, list):
        return [clean_all(one) for one in value]
    return clean(value, len(value)) if isinstance(value, str) else value


def words(
    header: str,
    texts: Iterable[str],
    tones: Sequence[str] = (),
    *,
    priority: int = 0,
    name: bool = False,
    least: int = 0,
) -> PageColumn:
    """A column of text, cleaned; of names no two that differ read alike."""
    shown = [clean(t) for t in (apart([*texts], NAME_LIMIT) if name else texts)]
    return PageColumn(header, _cells(shown, tones), "", False, priority, name, least)


def figures(
    header: str,
    values: Iterable[float | None],
    unit: str,
    tones: Sequence[str] = (),
    *,
    priority: int = 0,
    scale: units.Scale | None = None,
    at_least: Sequence[bool] = (),
) -> PageColumn:
    """A column of numbers in base `unit`s, in one scale (its own, or the one given); absent ones are dashes.

    What is too small for the scale is `< 0.1`, never 0.0. `at_least` marks values that the truth may exceed: `≥ 9.69`.
    """
    known = list(values)
    used = scale or column_scale(known, unit)
    limits = [*at_least, *[False] * (len(known) - len(at_least))]
    shown = [_number(v, used, is_limit) for v, is_limit in zip(known, limits, strict=True)]
    return PageColumn(header, _cells(shown, tones), used.suffix, True, priority)


def in_part(known: float, whole: float = 1.0) -> bool:
    """Return whether a sum over kernels that take `known` is a lower limit of that over all, which take `whole`."""
    return known < _WHOLE * whole


def _number(value: float | None, scale: units.Scale, is_limit: bool) -> str:
    text = scale.nonzero(value)
    if not is_limit or not value or text == units.ABSENT:
        return text
    return "> 0" if text[0] in "<>" else f"≥ {text}"


def column_scale(values: Iterable[float | None], unit: str) -> units.Scale:
    """`units.scale_for`; for times that span more than a factor of four a step finer, so that small ones show."""
    known = [abs(v) for v in values if v is not None and math.isfinite(v) and v != 0]
    scale = units.scale_for(known, unit)
    largest, least = max(known, default=0.0), min(known, default=0.0)
    if unit != "ns" or least >= largest / 4:
        return scale
    finer = units.scale_for([largest / 10], unit)
    digits = 0 if finer.factor == 1.0 else 1 if largest / finer.factor >= 10 else 2
    return units.Scale(finer.factor, finer.suffix, digits)


def table(
    title: str, *columns: PageColumn, notes: Iterable[str] = (), total: bool = False, in_text: int | None = None
) -> Table:
    """A table of `columns`; columns in which nothing is known are left out. A total row is set strong."""
    kept = tuple(c for c in columns if c.name or any(cell.text not in ("", units.ABSENT) for cell in c.cells))
    if total:
        kept = tuple(replace(c, cells=(*c.cells[:-1], Cell(c.cells[-1].text, "strong"))) for c in kept)
    return Table(clean(title), kept, tuple(clean(note, NOTE_LIMIT) for note in notes), total, in_text)


def efficiency_tone(value: float | None) -> str:
    """How near to its roof: good from 70 %, fair from 40 %, else poor; bad above 105 %, which cannot be true."""
    if value is None or value != value:
        return ""
    if value > 1.05:
        return "bad"
    return "good" if value >= 0.7 else "fair" if value >= 0.4 else "poor"


def _cells(texts: Sequence[str], tones: Sequence[str]) -> tuple[Cell, ...]:
    padded = [*tones, *[""] * (len(texts) - len(tones))]
    return tuple(Cell(t, tone) for t, tone in zip(texts, padded, strict=True))
