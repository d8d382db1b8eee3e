"""The brief answer about any result that has a page: its verdict, and its tables as text."""

from __future__ import annotations

from typing import Any

from perfkit.render.brief.texts import cropped, known
from perfkit.render.cells import Table
from perfkit.render.output import Output
from perfkit.render.report import on_terminal

_TABLES = 4


def answer(output: Output, length: int, rows: int) -> dict[str, Any]:
    """Return the answer with sentences of `length` characters, and at most `rows` rows of a table."""
    form = on_terminal(None)
    page = output.page(form)
    sections = [section for _, shown in page.shown(form.fold) for section in shown]
    tables = [section.table for section in sections if section.table]
    shown = tables[: min(rows, _TABLES)]
    left = {
        "tables": len(tables) - len(shown),
        "rows": sum(max(len(table.columns[0].cells) - rows, 0) for table in shown if table.columns),
    }
    made = {
        "of": output.name,
        "measured": known({"title": cropped(page.title, length), "how": cropped(" ".join(page.settings), length)}),
        "verdict": [cropped(sentence, length) for sentence in page.verdict[:3]],
        "tables": [_table(table, length, rows) for table in shown],
        "unknown": [cropped(text, length) for text in page.warnings[:rows]],
        "left_out": {name: count for name, count in left.items() if count} or None,
    }
    return known(made)


def _table(table: Table, length: int, rows: int) -> dict[str, Any]:
    """A table by its columns, which name their units."""
    cells = zip(*(column.cells for column in table.columns), strict=True)
    return {
        "title": cropped(table.title, 120),
        "columns": [cropped(column.title, 40) for column in table.columns],
        "rows": [[cropped(cell.text, length) for cell in row] for row in list(cells)[:rows]],
    }
