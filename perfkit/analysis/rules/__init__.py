"""The rules behind "What to do next": one record each, with its texts and the function that finds the fault.

`perfkit explain` and docs/findings.md print the same records: nothing is said of a rule anywhere else. What the rules
find in one backend's results, `perfkit.analysis.rules.answers` puts in order.
"""

from __future__ import annotations

from perfkit.analysis.rules import (
    access,
    chains,
    compiler,
    copies,
    host,
    idle,
    kernels,
    machine,
    movement,
    optimizer,
    paging,
    warps,
)
from perfkit.analysis.rules.base import Case, Circumstances, Rule

__all__ = ["OF_COUNTERS", "OF_KERNELS", "RULES", "Case", "Circumstances", "Rule", "by_name"]

OF_COUNTERS = (*access.RULES, *warps.RULES)  # causes before symptoms: a kernel's first reason is the one to mend first
OF_KERNELS = (*kernels.RULES, *copies.RULES, *OF_COUNTERS)  # those that need no step around the kernels
RULES: tuple[Rule, ...] = (
    *host.RULES, *idle.RULES, *movement.RULES, *chains.RULES, *optimizer.RULES, *compiler.RULES, *machine.RULES,
    *paging.RULES, *OF_KERNELS,
)  # fmt: skip


def by_name() -> dict[str, Rule]:
    """Every rule by its name, in the order of the list."""
    return {rule.name: rule for rule in RULES}
