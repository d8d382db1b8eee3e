"""The pages as text: their lines are short enough to read and to compare."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
LONGEST = 129


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_under_130_characters(page):
    """Tables, headings, pictures and code blocks are as long as they are."""
    code, long = False, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            code = not code
        if not code and len(line) > LONGEST and not line.lstrip().startswith(("|", "#", "![")):
            long.append(f"{number}: {line[:60]}…")
    assert not long
