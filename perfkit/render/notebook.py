"""What results show of themselves in a notebook: a few lines of HTML, every text escaped, no script."""

from __future__ import annotations

import html

from perfkit.analysis.results import BackendReport, Report
from perfkit.render import sentences, tables
from perfkit.render.cells import Cell, Table

KERNELS = 10  # kernels that a summary shows
FINDINGS = 3

# A notebook may be light or dark: text keeps the page's own colour, and only what stands out gets one that suits both.
_COLORS = {"good": "#2a9d63", "fair": "#b9831f", "poor": "#d2653a", "bad": "#d8434e"}
_CELL = "padding:2px 10px;text-align:{align};white-space:nowrap"


def render(report: Report) -> str:
    """Verdict, backends, and the kernels with the largest headroom of the first backend that has any."""
    parts = [f"<p><strong>{_safe(sentences.heading(report))}</strong><br>{_safe(sentences.settings(report))}</p>"]
    parts += [f"<p style='margin:2px 0'>{_safe(sentence)}</p>" for sentence in sentences.verdict(report)]
    if report.kind == "run":
        parts.append(_table(tables.backends(report)))
    known = next((b for b in report.backends if b.kernels), None)
    if known:
        parts += [f"<p style='margin:2px 0'>{_safe(head)}. {_safe(remedy)}</p>" for head, _, remedy in _findings(known)]
        total = known.tree.total if known.tree else None
        title = f"Kernels of {known.name} by time"
        parts.append(_table(tables.kernels(title, known.kernels, total, len(known.kernels), KERNELS)))
        told = f"{sentences.coverage(known)} {sentences.trace_checks(known)}".strip()
        parts.append(f"<p style='opacity:.75'>{_safe(told)}</p>")
    return f"<div class='perfkit'>{''.join(parts)}</div>"


def _findings(backend: BackendReport) -> list[tuple[str, str, str]]:
    return [sentences.finding(found, backend.per) for found in backend.findings[:FINDINGS]]


def _table(table: Table) -> str:
    align = ["right" if column.numeric else "left" for column in table.columns]
    heads = zip(table.columns, align, strict=True)
    head = "".join(f"<th style='{_CELL.format(align=a)}'>{_safe(column.title)}</th>" for column, a in heads)
    rows = "".join(
        f"<tr>{''.join(_cell(cell, a) for cell, a in zip(row, align, strict=True))}</tr>" for row in table.rows
    )
    notes = "".join(f"<div style='opacity:.75'>{_safe(note)}</div>" for note in table.notes)
    caption = f"<caption style='text-align:left;font-weight:600'>{_safe(table.title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def _cell(cell: Cell, align: str) -> str:
    color = _COLORS.get(cell.tone)
    style = _CELL.format(align=align) + (f";color:{color}" if color else "")
    weight = ";font-weight:600" if cell.tone in ("strong", "bad") else ""
    return f"<td style='{style}{weight}'>{_safe(cell.text)}</td>"


def _safe(text: str) -> str:
    return html.escape(sentences.clean(text, sentences.SENTENCE))
