"""A page: a title, what was found, and sections. Every result is shown as one, the report (`render/report.py`) too.

The same page becomes one HTML file (template `reports/page/`), text for a terminal, Markdown, or a notebook's summary.
`fold` says how short a form a section still belongs to: `SUMMARY` in all, `SCREEN` on a terminal, `WHOLE` in full ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from perfkit.render import terminal
from perfkit.render.cells import Table
from perfkit.render.pages.figures import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from perfkit.render.views import Answers

TEMPLATE = "page"
SUMMARY, SCREEN, WHOLE = 0, 1, 2


class Item(msgspec.Struct):
    """An entry of a list: a sentence, and lines that explain it."""

    head: str
    lines: list[str] = []


class Section(msgspec.Struct, kw_only=True):
    """A part of the page, in the order: title, text, list, code, table, figures, notes.

    A table has its own title. `view` names what the report's HTML page draws instead, from the report's data
    (`reports/report/cards.js`); a section without one is drawn as it is.
    """

    title: str = ""
    text: list[str] = []
    items: list[Item] = []
    numbered: bool = False
    code: str = ""
    table: Table | None = None
    figures: list[Figure] = []
    notes: list[str] = []
    view: str = ""
    fold: int = SUMMARY

    @property
    def name(self) -> str:
        """Its title, or that of its table."""
        return self.title or (self.table.title if self.table else "")

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to show but the HTML page's own view."""
        return not (self.text or self.items or self.code or self.table or self.figures or self.notes)


class Part(msgspec.Struct, kw_only=True):
    """Sections under a title of their own, such as those of one backend; `fold` is that of the title."""

    title: str = ""
    bad: bool = False
    backend: str = ""
    fold: int = SUMMARY
    sections: list[Section] = []


class Page(msgspec.Struct, kw_only=True):
    """A title, a line of settings, sentences on the input and on what was found, the sections, and the warnings."""

    title: str
    settings: list[str] = []
    about: list[str] = []
    verdict: list[str] = []
    bad: bool = False
    sections: list[Section] = []
    parts: list[Part] = []
    warnings: list[str] = []

    def shown(self, fold: int) -> Iterator[tuple[Part | None, list[Section]]]:
        """The sections that a form of this `fold` shows, by part; first those of the page itself, under None."""
        for part in (None, *self.parts):
            sections = [s for s in (part or self).sections if s.fold <= fold and not s.empty]
            if sections:
                yield part, sections


def below(first: Page, heading: str, second: Page) -> Page:
    """Return one page of two: the sections of `second` are parts of it under `heading`."""
    head = Section(title=second.title, text=[" · ".join(second.settings), *second.about])
    said = Section(items=[Item(sentence) for sentence in second.verdict])
    return msgspec.structs.replace(
        first,
        parts=[*first.parts, Part(title=heading, sections=[head, said, *second.sections]), *second.parts],
        warnings=[*first.warnings, *second.warnings],
    )


def render_html(page: Page, template: Path | None = None, answers: Answers | None = None) -> str:
    """One HTML file that needs nothing else; `answers` for a template that has a place for them.

    Raises what `perfkit.render.html.page` raises.
    """
    from perfkit.content import content_dir
    from perfkit.render import html

    content = html.embedded(None, page_data(page))
    return html.page(template or content_dir("reports") / TEMPLATE, page.title, content, answers)


def page_data(page: Page, views: bool = False) -> dict[str, object]:
    """The page as what its script draws. With `views` a section that the script has a view of is that name alone."""
    fields = {name: getattr(page, name) for name in ("title", "settings", "verdict", "bad")}
    parts = [
        {"title": part.title, "backend": part.backend, "sections": [section_data(s, views) for s in part.sections]}
        for part in page.parts
    ]
    return {**fields, "sections": [section_data(s, views) for s in page.sections], "parts": parts}


def section_data(section: Section, views: bool = False) -> dict[str, object]:
    """A section as what the page's script draws."""
    if views and section.view:
        return {"view": section.view}
    made: dict[str, object] = msgspec.structs.asdict(section)
    return {**made, "table": table_data(section.table) if section.table else None}


def table_data(table: Table) -> dict[str, object]:
    """The table as what the page's script draws."""
    columns = [{"head": c.header, "unit": c.unit, "right": c.numeric} for c in table.columns]
    rows = [[{"text": c.text, "tone": c.tone} for c in row] for row in table.rows]
    return {"title": table.title, "columns": columns, "rows": rows, "notes": list(table.notes)}


def render_markdown(page: Page, fold: int = WHOLE) -> str:
    """The page's sentences and tables; figures are left out."""
    from perfkit.render import markdown

    return markdown.page(page, fold)


def render_text(page: Page, width: int = terminal.WIDTH, fold: int = WHOLE, color: bool = False) -> str:
    """The page as text `width` columns wide, plain or with the signs for colours."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, color_system="standard" if color else None, no_color=not color,
        legacy_windows=False, emoji=False, highlight=False, markup=False, _environ={},
    )  # fmt: skip
    show(page, console, fold)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def show(page: Page, console: Console | None = None, fold: int = WHOLE) -> None:
    """Print the page on `console` or on stdout, at most 120 wide: tables, and figures drawn with characters."""
    terminal.show(page, console or terminal.console(), fold)
