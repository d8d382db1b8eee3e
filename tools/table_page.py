"""The tables of docs/table.md, made from `perfkit.table.COLUMNS` so that the page cannot say other than the code.

python -m tools.table_page docs/table.md      writes them anew between the page's markers
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from perfkit.table import COLUMNS, SCHEMA_VERSION, Column

BEGIN, END = "<!-- made from perfkit.table: begin -->", "<!-- made from perfkit.table: end -->"

_TITLES = {
    "identity": "What it is",
    "place": "Where it belongs",
    "launch": "How it was launched",
    "collective": "What a collective sends",
    "time": "Time",
    "flop": "Work",
    "bytes": "Minimal traffic",
    "dram": "Memory traffic (counters)",
    "l2": "L2 traffic (counters)",
    "l1": "L1 traffic (counters)",
    "tensor": "Matrix units (counters)",
    "instructions": "Instructions (counters)",
    "origin": "Where the measures are from",
}
_TYPES = {"string": "text", "Int64": "integer", "float64": "real", "category": "category"}


def with_tables(page: str) -> str:
    """`page` with fresh tables between its markers. Raises `ValueError` where a marker is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no markers")
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def tables() -> str:
    """One Markdown table a group of columns."""
    parts = [f"Schema version {SCHEMA_VERSION}, {len(COLUMNS)} columns.\n"]
    for group, columns in groupby(COLUMNS, key=lambda c: c.group):
        parts.append(f"## {_TITLES[group]}\n\n| column | type | unit | holds |\n|---|---|---|---|")
        parts += [_line(c) for c in columns]
        parts.append("")
    return "\n".join(parts)


def _line(column: Column) -> str:
    unit = {"%": "share, 0 to 1", "": "–"}.get(column.unit, column.unit)
    return f"| `{column.name}` | {_TYPES[column.dtype]} | {unit} | {column.text} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
