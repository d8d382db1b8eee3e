"""docs/costs.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from perfkit.cost import GPTShape, matmul_flop
from tools.pages.costs import markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "costs.md"


def test_every_row_of_a_table_has_its_formula() -> None:
    rows = [line for line in markdown().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert all(cell.strip() for row in rows for cell in row.replace("\\|", "").strip("|").split("|"))


def test_the_figures_for_124m() -> None:
    flop = matmul_flop(GPTShape(batch=4, time=64, channels=768, heads=12, layers=12, vocabulary=50257))
    sentence = f"{flop['forward']['total'] / 1e9:.2f} GFLOP and a step {flop['step']['total'] / 1e9:.2f} GFLOP"
    assert sentence in PAGE.read_text(encoding="utf-8")
