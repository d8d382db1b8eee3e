"""docs/table.md says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.table import COLUMNS
from tools.table_page import with_tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "table.md"


def test_the_page_is_fresh() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run: python -m tools.table_page docs/table.md"


def test_every_column_is_described_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for column in COLUMNS:
        assert page.count(f"| `{column.name}` |") == 1


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no markers"):
        with_tables("nothing")
