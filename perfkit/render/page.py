"""A page of sections, each with a table, a figure, or both: what benchmarks and training logs are shown as.

The same page becomes one HTML file (template `reports/page/`), text for a terminal, or Markdown.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perfkit.content import content_dir
from perfkit.render import html, markdown, textplot
from perfkit.render.cells import Cell, Table
from perfkit.render.pages.figures import Figure
from perfkit.render.views import Answers

if TYPE_CHECKING:
    from rich.console import Console

TEMPLATE = "page"
WIDTH = 110


class Section(msgspec.Struct, kw_only=True):
    """A part of the page, in the order: table, figures, notes."""

    table: Table | None = None
    figures: list[Figure] = []
    notes: list[str] = []


class Page(msgspec.Struct, kw_only=True):
    """A title, a line of settings, sentences that say what was found, and the sections."""

    title: str
    settings: list[str] = []
    verdict: list[str] = []
    bad: bool = False
    sections: list[Section] = []


def render_html(page: Page, template: Path | None = None, answers: Answers | None = None) -> str:
    """One HTML file that needs nothing else; `answers` for a template that has a place for them.

    Raises what `perfkit.render.html.page` raises.
    """
    content = html.embedded(page_data(page))
    return html.page(template or content_dir("reports") / TEMPLATE, page.title, content, answers)


def page_data(page: Page) -> dict[str, object]:
    """The page as what its script draws: sections, and the tables beside them."""
    bare = msgspec.structs.replace(page, sections=[_bare(s) for s in page.sections])
    return {"page": bare, "tables": [table_data(s.table) if s.table else None for s in page.sections]}


def _bare(section: Section) -> Section:
    return msgspec.structs.replace(section, table=None)


def table_data(table: Table) -> dict[str, object]:
    """The table as what the page's script draws."""
    columns = [{"head": c.header, "unit": c.unit, "right": c.numeric} for c in table.columns]
    rows = [[{"text": c.text, "tone": c.tone} for c in row] for row in table.rows]
    return {"title": table.title, "columns": columns, "rows": rows, "notes": list(table.notes)}


def render_markdown(page: Page) -> str:
    """The page's sentences and tables; figures are left out."""
    parts = [f"# {markdown.escape(page.title)}", markdown.escape(" · ".join(page.settings))]
    parts.append("\n".join(f"- {markdown.escape(line)}" for line in page.verdict))
    for section in page.sections:
        parts += [markdown.table(section.table, 2)] if section.table else []
        parts += [f"*{markdown.escape(note)}*" for note in section.notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def render_text(page: Page, width: int = WIDTH) -> str:
    """The page as plain text, `width` columns wide."""
    from rich.console import Console

    out = io.StringIO()
    show(page, Console(file=out, width=width, no_color=True, highlight=False, markup=False, emoji=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def show(page: Page, console: Console) -> None:
    """Print the page on `console`: tables, and figures drawn with characters."""
    from rich.text import Text

    from perfkit.render import terminal

    width = min(console.width, 120)
    for part in _parts(page, width):
        if isinstance(part, Table):
            lines = list(terminal.table_lines(part, width))
        else:
            lines = [Text(part.text, style=terminal.STYLES.get(part.tone, ""))]
        for line in lines:
            for piece in line.wrap(console, width) or [line]:
                piece.rstrip()
                console.print(piece, soft_wrap=True)


def _parts(page: Page, width: int) -> Iterator[Cell | Table]:
    yield Cell(page.title, "strong")
    if page.settings:
        yield Cell(" · ".join(page.settings), "dim")
    for sentence in page.verdict:
        yield Cell(f"▸ {sentence}", "bad" if page.bad else "")
    for section in page.sections:
        if section.table:
            yield section.table.of_text
        for figure in section.figures:
            yield Cell("")
            for line in textplot.lines(figure, min(width, 100)):
                yield Cell(line)
        for note in section.notes:
            yield Cell(note, "dim")
