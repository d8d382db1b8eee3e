"""The rules behind "What to do next": one record each, with its texts and the function that finds the fault.

A file of this folder that has `RULES` is asked. `perfkit explain` and docs/findings.md print the same records: nothing
is said of a rule anywhere else. What the rules find in one backend's results, `perfkit.analysis.rules.answers` orders.
"""

from __future__ import annotations

import importlib
import pkgutil

from perfkit.analysis.rules import access, alignment, copies, kernels, warps
from perfkit.analysis.rules.base import Case, Circumstances, Rule

__all__ = ["OF_COUNTERS", "OF_KERNELS", "RULES", "Case", "Circumstances", "Rule", "by_name"]

# Causes before symptoms: what one rule claims, those after it do not tell again. Other files come between the two.
_FIRST = (
    "unequal",
    "host",
    "idle",
    "overhead",
    "attention",
    "movement",
    "chains",
    "optimizer",
    "compiler",
    "machine",
    "tables",
    "paging",
)
OF_COUNTERS = (*access.RULES, *warps.RULES)  # a kernel's first reason is the one to mend first
# Those that need no step around the kernels.
OF_KERNELS = (*alignment.RULES, *kernels.RULES, *copies.RULES, *OF_COUNTERS)


def _of_steps() -> tuple[Rule, ...]:
    """The rules of every other file in this folder."""
    last = {module.__name__.rpartition(".")[2] for module in (access, alignment, copies, kernels, warps)}
    found = {module.name for module in pkgutil.iter_modules(__path__)} - last
    names = (*_FIRST, *sorted(found - set(_FIRST)))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names if name != "answers"]
    return tuple(rule for module in modules for rule in getattr(module, "RULES", ()))


RULES: tuple[Rule, ...] = (*_of_steps(), *OF_KERNELS)


def by_name() -> dict[str, Rule]:
    """Every rule by its name, in the order of the list."""
    return {rule.name: rule for rule in RULES}
