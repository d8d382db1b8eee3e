"""The rules behind "What to do next" of several ranks: a file each, with its texts and what finds the fault.

A file of this folder that has `RULES` is asked. `perfkit explain` and docs/findings.md print the same records.
"""

from __future__ import annotations

import importlib
import pkgutil

from perfkit.analysis.results import Unjudged
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import RanksCase, RanksRule

__all__ = ["RULES", "RanksCase", "RanksRule", "answers"]

WORTH = 0.02  # of the step: what would save less is left out
# In the order in which they are explained; other files come after these.
_FIRST = ("straggler", "exposed", "buckets", "precision", "prefetch", "queues", "links")


def _found() -> tuple[RanksRule, ...]:
    names = {module.name for module in pkgutil.iter_modules(__path__)} - {"base"}
    ordered = (*_FIRST, *sorted(names - set(_FIRST)))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in ordered]
    return tuple(rule for module in modules for rule in getattr(module, "RULES", ()))


RULES: tuple[RanksRule, ...] = _found()


def answers(case: RanksCase) -> tuple[list[RanksFinding], list[Unjudged]]:
    """Everything that the rules find and that is worth saying, the largest saving first; and what cannot be judged."""
    said = [answer for rule in RULES for answer in rule.find(rule, case)]
    found = [one for one in said if isinstance(one, RanksFinding) and one.share >= WORTH]
    return sorted(found, key=lambda f: -f.saving_ns), [one for one in said if isinstance(one, Unjudged)]
