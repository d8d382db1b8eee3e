"""A page in a terminal: paragraphs, lists, tables that fit the width, figures drawn with characters."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfkit.analysis.words import apart
from perfkit.render.cells import Cell, PageColumn, Table
from perfkit.units import LADDERS, cropped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from perfkit.analysis.results import Report
    from perfkit.render.page import Page, Section

WIDTH, WIDEST = 110, 120  # of a file or pipe; the most of any
NAME_WIDTH = 36  # the least that a column of names keeps
LEAST_WIDTH = 8  # what any column of text keeps
_FIGURE_WIDTH = 100
_GAP = 2

STYLES = {
    "good": "green",
    "fair": "yellow",
    "poor": "red",
    "bad": "bold red",
    "strong": "bold",
    "dim": "bright_black",
    "title": "bold cyan",
}


def render(report: Report, width: int = WIDTH, color: bool = False, limit: int | None = None) -> str:
    """The report as text `width` columns wide; `limit` rows a table: 0 for all, None for the short form."""
    from perfkit.render import page
    from perfkit.render.report import on_terminal, report_page

    form = on_terminal(limit)
    return page.render_text(report_page(report, form), width, form.fold, color)


def console(on_stderr: bool = False) -> Console:
    """Stdout or stderr; in a file or pipe as wide as a page is, where rich would take 80."""
    from rich.console import Console

    stream = sys.stderr if on_stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width, stderr=on_stderr)


def show(page: Page, console: Console, fold: int) -> None:
    """Print on `console` what a form of this `fold` shows of the page."""
    from rich.text import Text

    width = min(console.width, WIDEST)
    pieces = []
    for part in _paragraphs(page, fold, width):
        indent, hang = 0, 0
        if isinstance(part, Table):
            lines = list(table_lines(part, width))
        else:
            indent, hang = _indents(part.text)
            lines = [Text(_AMOUNT.sub(_TIE, part.text.lstrip()), style=STYLES.get(part.tone, ""))]
        for line in lines:
            for number, piece in enumerate(line.wrap(console, width - indent - hang) or [line]):
                piece.plain = piece.plain.replace(_TIE, " ").rstrip()
                piece.pad_left(indent + (hang if number else 0) if piece.plain else 0)
                pieces.append(piece)
    console.print(Text("\n").join(pieces), soft_wrap=True)  # at once: each print costs as much as a page of text


_TIE = "\ue000"  # of the private use area: where a paragraph breaks, rich takes a no-break space for a space
_UNITS = sorted({suffix for ladder in LADDERS.values() for _, suffix in ladder if suffix}, key=len, reverse=True)
_AMOUNT = re.compile(rf"(?<=\d) (?=(?:{'|'.join(map(re.escape, _UNITS))})(?![\w/]))")  # a number and its unit
_MARKER = re.compile(r" *((\d+\.|·|→) )?")


def _indents(text: str) -> tuple[int, int]:
    """The spaces that a paragraph begins with, and the further indent of its next lines: after a list's marker."""
    found = _MARKER.match(text)
    assert found is not None  # it matches nothing too
    marker = found[1] or ""
    return found.end() - len(marker), len(marker)


def _paragraphs(page: Page, fold: int, width: int) -> Iterator[Cell | Table]:
    """Paragraphs and tables in the order of reading."""
    yield Cell(page.title, "strong")
    if page.settings:
        yield Cell(" · ".join(page.settings), "dim")
    for line in page.about:
        yield Cell(line, "dim")
    if page.verdict:
        yield Cell("")
    for sentence in page.verdict:
        yield Cell(f"▸ {sentence}", "bad" if page.bad else "")
    for part, sections in page.shown(fold):
        if part and part.title and part.fold <= fold:
            yield Cell("")
            yield Cell(f"━━ {part.title} ━━", "bad" if part.bad else "strong")
        for section in sections:
            yield from _section(section, min(width, _FIGURE_WIDTH))
    for note in page.warnings:
        yield Cell(f"! {note}", "fair")


def _section(section: Section, width: int) -> Iterator[Cell | Table]:
    from perfkit.render import textplot

    if section.title or section.text or section.code:
        yield Cell("")
    if section.title:
        yield Cell(section.title, "title")
    yield from (Cell(line, "dim") for line in section.text)
    for number, item in enumerate(section.items, start=1):
        yield Cell(f"{number}. {item.head}", "strong") if section.numbered else Cell(f"  · {item.head}")
        yield from (Cell(f"   {line}") for line in item.lines)
    yield from (Cell(f"  {line}") for line in section.code.splitlines())
    if section.table:
        yield section.table.of_text
    for figure in section.figures:
        if figure.series[0].line == "stack":
            continue  # stacked areas are for a browser
        yield Cell("")
        yield from map(Cell, textplot.lines(figure, width))
    yield from (Cell(note, "dim") for note in section.notes)


def table_lines(table: Table, width: int) -> Iterator[Text]:
    """The title, the header and the rows, aligned, at most `width` wide: columns go, then names are cropped."""
    from rich.text import Text

    columns, widths = _fit(table, width)
    yield Text("")
    yield Text(cropped(table.title, width), style="bold cyan")
    if any(c.unit for c in columns):
        yield _line([Cell(c.header, "dim") for c in columns], columns, widths)
        yield _line([Cell(c.unit, "dim") for c in columns], columns, widths)
    else:
        yield _line([Cell(c.header, "dim") for c in columns], columns, widths)
    cells = [_apart(c.cells, w) if c.name else c.cells for c, w in zip(columns, widths, strict=True)]
    rows = list(zip(*cells, strict=True))
    for number, row in enumerate(rows):
        if table.total and number == len(rows) - 1:
            yield Text("─" * (sum(widths) + _GAP * (len(widths) - 1)), style="bright_black")
        yield _line(row, columns, widths)
    for note in table.notes:
        yield Text(_AMOUNT.sub(_TIE, note), style="bright_black")


def _fit(table: Table, width: int) -> tuple[list[PageColumn], list[int]]:
    """The columns that fit in `width` and their widths. Columns of the highest priority number go first."""
    columns = list(table.columns)
    while True:
        widths = [_natural(c) for c in columns]
        least = sum(min(w, NAME_WIDTH if c.name else c.least or w) for w, c in zip(widths, columns, strict=True))
        expendable = max((c.priority for c in columns), default=0)
        if least + _GAP * (len(columns) - 1) <= width or not expendable:
            return columns, _shrunk(columns, widths, width)
        columns.remove(next(c for c in reversed(columns) if c.priority == expendable))


def _shrunk(columns: list[PageColumn], widths: list[int], width: int) -> list[int]:
    """Widths that add up to at most `width`: the widest column of text gives way, and figures only at the very last."""
    shrunk = list(widths)
    text = [i for i, column in enumerate(columns) if not column.numeric]
    for _ in range(sum(widths) + _GAP * (len(widths) - 1) - width):
        wide = [i for i in text if shrunk[i] > LEAST_WIDTH] or range(len(shrunk))
        shrunk[max(wide, key=shrunk.__getitem__)] -= 1
    return shrunk


def _natural(column: PageColumn) -> int:
    from rich.cells import cell_len

    return max(cell_len(text) for text in (column.header, column.unit, *(c.text for c in column.cells)))


def _line(cells: list[Cell] | tuple[Cell, ...], columns: list[PageColumn], widths: list[int]) -> Text:
    from rich.text import Text

    line = Text(no_wrap=True)
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = Text(_cropped(cell.text, width), style=STYLES.get(cell.tone, ""))
        text.align("right" if column.numeric else "left", width)
        if line:
            line.append(" " * _GAP)
        line.append_text(text)
    line.rstrip()
    return line


def _apart(cells: Sequence[Cell], width: int) -> list[Cell]:
    """Cells of which no two that differ read alike in `width`."""
    short = [_cropped(cell.text, width) for cell in cells]
    alike = [len({c.text for c, s in zip(cells, short, strict=True) if s == text}) > 1 for text in short]
    longer = iter(apart([cell.text for cell, is_alike in zip(cells, alike, strict=True) if is_alike], width))
    return [replace(c, text=next(longer)) if is_alike else c for c, is_alike in zip(cells, alike, strict=True)]


def _cropped(text: str, width: int) -> str:
    """`text` in at most `width` terminal cells, wide characters counted as two."""
    from rich.cells import cell_len

    shown = cropped(text, width)
    while cell_len(shown) > width:
        shown = cropped(text, len(shown) - 1)
    return shown
