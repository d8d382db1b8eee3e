"""The tables of docs/table.md, made from `perfkit.table.COLUMNS`."""

from __future__ import annotations

from itertools import groupby

from perfkit.table import COLUMNS, SCHEMA_VERSION, ColumnSpec

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


def markdown() -> str:
    """One Markdown table a group of columns."""
    parts = [f"Schema version {SCHEMA_VERSION}, {len(COLUMNS)} columns.\n"]
    for group, columns in groupby(COLUMNS, key=lambda c: c.group):
        parts.append(f"## {_TITLES[group]}\n\n| column | type | unit | holds |\n|---|---|---|---|")
        parts += [_line(c) for c in columns]
        parts.append("")
    return "\n".join(parts)


def _line(column: ColumnSpec) -> str:
    unit = {"%": "share, 0 to 1", "": "–"}.get(column.unit, column.unit)
    return f"| `{column.name}` | {_TYPES[column.dtype]} | {unit} | {column.text} |"
