"""The rules' texts for a person: all on one screen, one in full, and the tables of docs/findings.md.

`python -m perfkit.render.explanations docs/findings.md` writes that page anew between its markers.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from perfkit.analysis import rules
from perfkit.analysis.rules.base import Texts
from perfkit.ranks import rules as of_ranks

RULES: tuple[Texts, ...] = (*rules.RULES, *of_ranks.RULES)
BEGIN, END = "<!-- made from perfkit.analysis.rules: begin -->", "<!-- made from perfkit.analysis.rules: end -->"
WIDTH, WIDTH_OF_PAGE = 100, 120  # of the terminal's text, of the documentation
_PARTS = (
    ("What it is", "what"),
    ("How it is recognised", "recognised"),
    ("What the estimate assumes", "estimate"),
    ("Remedies", "remedies"),
    ("Example", "example"),
)


def listing(rules: Iterable[Texts]) -> str:
    """Name and summary of every rule, a line each."""
    known = list(rules)
    width = max(len(rule.name) for rule in known)
    return "\n".join(f"{rule.name:<{width}}  {rule.summary}" for rule in known)


def text(rule: Texts) -> str:
    """One rule in full."""
    parts = [f"{rule.name}: {rule.summary}", f"On: {rule.where}"]
    for title, attribute in _PARTS:
        value = getattr(rule, attribute)
        lines = [value] if isinstance(value, str) else list(value)
        mark = "" if isinstance(value, str) else "→ "
        filled = "\n".join(
            textwrap.fill(line, WIDTH, initial_indent=f"  {mark}", subsequent_indent="  " + " " * len(mark))
            for line in lines
        )
        parts.append(f"{title}\n{filled}")
    return "\n\n".join(parts)


def markdown(rules: Iterable[Texts]) -> str:
    """All rules for the documentation: a table of them, then a section each."""
    known = list(rules)
    rows = [f"| [`{rule.name}`](#{_anchor(rule.name)}) | {rule.where} | {rule.summary} |" for rule in known]
    sections = [_section(rule) for rule in known]
    return "\n".join(["| finding | on | what |", "|---|---|---|", *rows]) + "\n\n" + "\n\n".join(sections)


def _section(rule: Texts) -> str:
    items = [("Recognised by", rule.recognised), ("Estimate", rule.estimate)]
    items += [("Remedy", remedy) for remedy in rule.remedies]
    items += [("Example", rule.example)]
    what = _filled(f"{_sentence(rule.summary)} {rule.what}")
    return "\n".join(
        [f"### {rule.name}", "", what, "", *(_filled(f"- **{name}**: {text}", "  ") for name, text in items)]
    )


def _filled(line: str, indent: str = "") -> str:
    return textwrap.fill(
        line, WIDTH_OF_PAGE, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9-]", "", name.lower())


def with_rules(page: str) -> str:
    """`page` with the text between the markers replaced; raises `ValueError` where a marker is missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no markers for the rules")
    return f"{head}{BEGIN}\n\n{markdown(RULES)}\n\n{END}{tail}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_rules(path.read_text(encoding="utf-8")), encoding="utf-8")
