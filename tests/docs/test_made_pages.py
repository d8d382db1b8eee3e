"""Generated parts of docs/ match the code."""

from __future__ import annotations

import pytest

from tools import pages


@pytest.mark.parametrize("name", sorted(pages.MADE))
def test_the_page_is_fresh(name: str) -> None:
    assert pages.fresh(name) == (pages.DOCS / name).read_text(encoding="utf-8"), "run: python -m tools.pages"


def test_a_page_without_markers_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    (tmp_path / "table.md").write_text("# nothing")
    with pytest.raises(ValueError, match="no markers"):
        pages.fresh("table.md")
