"""A page in a notebook: a few lines of HTML, every text escaped, no script."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from perfkit.render import sentences
from perfkit.render.cells import Cell, Table

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.render.page import Item, Page, Section

KERNELS = 10  # kernels that a summary shows
FINDINGS = 3

# A notebook may be light or dark: text keeps the page's own colour, and only what stands out gets one that suits both.
_COLORS = {"good": "#2a9d63", "fair": "#b9831f", "poor": "#d2653a", "bad": "#d8434e"}
_CELL = "padding:2px 10px;text-align:{align};white-space:nowrap"
_DIM, _TITLE = "opacity:.75", "font-weight:600"


def render(report: Report) -> str:
    """Verdict, backends, and the kernels that take longest of the first backend that has any."""
    from perfkit.render.page import SUMMARY
    from perfkit.render.report import ReportLength, report_page

    return page(report_page(report, ReportLength(rows=KERNELS, findings=FINDINGS, fold=SUMMARY, backends=1)), SUMMARY)


def page(shown: Page, fold: int) -> str:
    """Return the page in a form of this `fold`."""
    parts = [f"<p><strong>{_safe(shown.title)}</strong><br>{_safe(' · '.join(shown.settings))}</p>"]
    parts += [_paragraph(sentence) for sentence in shown.verdict]
    for part, sections in shown.shown(fold):
        parts += [_paragraph(part.title, _TITLE)] if part and part.title else []
        parts += [block for section in sections for block in _section(section)]
    return f"<div class='perfkit'>{''.join(parts)}</div>"


def _section(shown: Section) -> list[str]:
    parts = [_paragraph(shown.title, _TITLE)] if shown.title else []
    parts += [_paragraph(line, _DIM) for line in shown.text]
    parts += [_item(item) for item in shown.items]
    parts += [f"<pre>{html.escape(shown.code)}</pre>"] if shown.code else []
    parts += [_table(shown.table)] if shown.table else []
    return parts + [_paragraph(note, _DIM) for note in shown.notes]


def _item(item: Item) -> str:
    lines = "".join(f"<br>{_safe(line)}" for line in item.lines)
    return f"<p style='margin:2px 0'>{_safe(item.head)}{lines}</p>"


def _paragraph(text: str, style: str = "margin:2px 0") -> str:
    return f"<p style='{style}'>{_safe(text)}</p>"


def _table(table: Table) -> str:
    align = ["right" if column.numeric else "left" for column in table.columns]
    heads = zip(table.columns, align, strict=True)
    head = "".join(f"<th style='{_CELL.format(align=a)}'>{_safe(column.title)}</th>" for column, a in heads)
    rows = "".join(
        f"<tr>{''.join(_cell(cell, a) for cell, a in zip(row, align, strict=True))}</tr>" for row in table.rows
    )
    notes = "".join(f"<div style='{_DIM}'>{_safe(note)}</div>" for note in table.notes)
    caption = f"<caption style='text-align:left;font-weight:600'>{_safe(table.title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def _cell(cell: Cell, align: str) -> str:
    color = _COLORS.get(cell.tone)
    style = _CELL.format(align=align) + (f";color:{color}" if color else "")
    weight = ";font-weight:600" if cell.tone in ("strong", "bad") else ""
    return f"<td style='{style}{weight}'>{_safe(cell.text)}</td>"


def _safe(text: str) -> str:
    return html.escape(sentences.clean(text, sentences.SENTENCE))
