"""The rules' texts for a person: all on one screen, or one in full."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from perfkit.analysis import rules
from perfkit.analysis.rules.base import Texts
from perfkit.ranks import rules as of_ranks

RULES: tuple[Texts, ...] = (*rules.RULES, *of_ranks.RULES)
WIDTH = 100
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
