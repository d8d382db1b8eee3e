"""Parts of docs/ that are made from the code, so that a page cannot say other than it.

`python -m tools.pages` rewrites each, between the markers of its page.
"""

from __future__ import annotations

from pathlib import Path

from tools.pages import costs, findings, table, versions

DOCS = Path(__file__).resolve().parents[2] / "docs"
# A page → what it is made from, as its markers say, and its Markdown.
MADE = {
    "costs.md": ("perfkit.cost", costs.markdown),
    "findings.md": ("perfkit.analysis.rules", findings.markdown),
    "table.md": ("perfkit.table", table.markdown),
    "versions.md": ("tools.torch_versions", versions.markdown),
}


def fresh(name: str) -> str:
    """Return the text of docs/`name` with its generated part rewritten. Raises `ValueError` where a marker is
    missing."""
    source, markdown = MADE[name]
    begin, end = (f"<!-- made from {source}: {place} -->" for place in ("begin", "end"))
    head, found, rest = (DOCS / name).read_text(encoding="utf-8").partition(begin)
    _, ended, tail = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"docs/{name} has no markers for what is made from {source}")
    return f"{head}{begin}\n\n{markdown().strip()}\n\n{end}{tail}"
