"""The rules of "What to do next" of several ranks: a file each, with texts and a function.

A file of this folder that has `RULES` is asked. `perfkit explain` and docs/findings.md print the same records.
"""

from __future__ import annotations

from perfkit.analysis.results import Unjudged
from perfkit.analysis.rules.base import WORTH, collected
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import RanksCase, RanksRule

__all__ = ["RULES", "RanksCase", "RanksRule", "answers"]

RULES: tuple[RanksRule, ...] = collected(__name__, RanksRule)


def answers(case: RanksCase) -> tuple[list[RanksFinding], list[Unjudged]]:
    """Everything that the rules find and that is worth saying, the largest saving first; and what cannot be judged."""
    said = [answer for rule in RULES for answer in rule.find(rule, case)]
    found = [one for one in said if isinstance(one, RanksFinding) and one.share >= WORTH]
    return sorted(found, key=lambda f: -f.saving_ns), [one for one in said if isinstance(one, Unjudged)]
