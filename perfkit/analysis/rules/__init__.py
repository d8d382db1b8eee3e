"""The rules of "What to do next": one record each, with its texts and the function that finds the fault.

A file of this folder that has `RULES` is asked. `perfkit explain` and docs/findings.md print the same records: nothing
is said of a rule anywhere else. What the rules find in one backend's results, `perfkit.analysis.rules.answers` orders.
"""

from __future__ import annotations

from perfkit.analysis.rules import base
from perfkit.analysis.rules.base import Case, Circumstances, Rule, collected

__all__ = ["OF_COUNTERS", "OF_KERNELS", "RULES", "Case", "Circumstances", "Rule", "by_name"]

RULES: tuple[Rule, ...] = collected(__name__, Rule)
OF_KERNELS = tuple(rule for rule in RULES if rule.rank >= base.OF_KERNELS)
OF_COUNTERS = tuple(rule for rule in RULES if rule.explain)  # a kernel's first reason is the one to fix first


def by_name() -> dict[str, Rule]:
    """Every rule by its name, in the order of the list."""
    return {rule.name: rule for rule in RULES}
