"""The rules of docs/findings.md, made from their own texts."""

from __future__ import annotations

import re
import textwrap

from perfkit.analysis.rules.base import Texts
from perfkit.render.explanations import RULES

WIDTH = 120


def markdown() -> str:
    """A table of the rules, then a section each."""
    rows = [f"| [`{rule.name}`](#{_anchor(rule.name)}) | {rule.where} | {rule.summary} |" for rule in RULES]
    sections = [_section(rule) for rule in RULES]
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
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9-]", "", name.lower())
