"""docs/table.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from perfkit.table import COLUMNS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "table.md"


def test_every_column_is_described_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for column in COLUMNS:
        assert page.count(f"| `{column.name}` |") == 1
