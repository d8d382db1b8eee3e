"""A page as Markdown, for a pull request, an issue or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfkit.render.cells import Cell, PageColumn, Table

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.render.page import Item, Page, Section

LIMIT = 15  # rows of a table
# Markup for both GitHub and Python-Markdown (TensorBoard); an underscore inside a word does not count.
_ESCAPED = re.compile(r"([\\`*{}\[\]#!]|(?<!\w)_|_(?!\w))")
_ENTITIES = str.maketrans({c: f"&#{ord(c)};" for c in "&<>|~$"})


def render(report: Report, limit: int | None = LIMIT) -> str:
    """The report as GitHub-flavoured Markdown; `limit` rows a table, None for all."""
    from perfkit.render.page import WHOLE
    from perfkit.render.report import ReportLength, report_page

    return page(report_page(report, ReportLength(rows=limit, findings=limit)), WHOLE)


def page(shown: Page, fold: int) -> str:
    """Return the page in a form of this `fold`."""
    return "\n\n".join(part for part in _blocks(shown, fold) if part) + "\n"


def _blocks(shown: Page, fold: int) -> Iterator[str]:
    level = 3 if shown.parts else 2
    yield f"# {escape(shown.title)}"
    yield escape(" · ".join(shown.settings))
    yield from map(escape, shown.about)
    yield _bullets(shown.verdict)
    for part, sections in shown.shown(fold):
        yield f"## {escape(part.title)}" if part and part.title and part.fold <= fold else ""
        for one in sections:
            yield from section(one, level)
    if shown.warnings:
        yield f"{'#' * level} Warnings\n\n{_bullets(shown.warnings)}"


def section(shown: Section, level: int = 3) -> Iterator[str]:
    """The blocks of one section; figures are left out."""
    yield f"{'#' * level} {escape(shown.title)}" if shown.title else ""
    yield from map(escape, shown.text)
    yield "\n".join(_item(item, number if shown.numbered else 0) for number, item in enumerate(shown.items, start=1))
    yield f"```\n{shown.code.replace('```', '` ` `')}\n```" if shown.code else ""
    yield table(shown.table, level) if shown.table else ""
    yield from (f"*{escape(note)}*" for note in shown.notes)


def _item(item: Item, number: int) -> str:
    lines = "".join(f"\n   {escape(line)}" for line in item.lines)
    return f"{number}. **{escape(item.head)}**{lines}" if number else f"- {escape(item.head)}{lines}"


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def escape(text: str) -> str:
    """`text` as Markdown that shows it as it is: no markup, link, HTML or mention survives."""
    return _ESCAPED.sub(r"\\\1", text).translate(_ENTITIES).replace("@", "@\u200b")


def table(source: Table, level: int = 3) -> str:
    """One table under its title, with its notes."""
    lines = [f"{'#' * level} {escape(source.title)}", "", _row([escape(c.title) for c in source.columns])]
    lines.append(_row(["---:" if c.numeric else "---" for c in source.columns]))
    lines += [_row([_cell(c, column) for c, column in zip(row, source.columns, strict=True)]) for row in source.rows]
    for note in source.notes:
        lines += ["", f"*{escape(note)}*"]
    return "\n".join(lines)


def code(text: str) -> str:
    """`text` as inline code, whatever backticks are in it."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell, column: PageColumn) -> str:
    """A name is code where that is safe in a table; what stands out is bold."""
    strong = cell.tone in ("strong", "bad")
    plain = cell.text.replace("_", "").isalnum()
    if column.name and cell.text and not (strong or plain or set("|`") & set(cell.text)):
        return code(cell.text)
    text = escape(cell.text)
    return f"**{text}**" if strong and text else text
