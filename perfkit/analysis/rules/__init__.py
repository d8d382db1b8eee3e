"""The rules of "What to do next": one record each, with its texts and the function that finds the fault.

A file of this folder that has `RULES` is asked. `perfkit explain` and docs/findings.md print the same records: nothing
is said of a rule anywhere else. What the rules find in one backend's results, `of_case` orders: findings that save less
than `WORTH` of the step are left out, every finding has a figure, and a rule that cannot judge the profile says so.
"""

from __future__ import annotations

from perfkit.analysis.results import Finding, Group, Reason, Unjudged
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.rules import base
from perfkit.analysis.rules.base import WORTH, Case, Circumstances, Rule, collected
from perfkit.analysis.source import NCU

__all__ = ["OF_COUNTERS", "OF_KERNELS", "RULES", "Case", "Circumstances", "Rule", "by_name", "of_case", "reasons"]

MOST = 50
NEARLY = 0.8  # of the saving that others explain
RULES: tuple[Rule, ...] = collected(__name__, Rule)
OF_KERNELS = tuple(rule for rule in RULES if rule.rank >= base.OF_KERNELS)
OF_COUNTERS = tuple(rule for rule in RULES if rule.explain)  # a kernel's first reason is the one to fix first


def by_name() -> dict[str, Rule]:
    """Every rule by its name, in the order of the list."""
    return {rule.name: rule for rule in RULES}


def of_case(case: Case) -> tuple[list[Finding], list[Unjudged]]:
    """Everything that the rules find and that is worth saying, the largest saving first; and what cannot be judged."""
    of_steps = case.report.kind != NCU  # kernels that ncu measured one by one are not a step
    asked = RULES if of_steps else OF_KERNELS
    answers = [answer for rule in asked if rule.is_about(case) for answer in rule.find(rule, case)]
    found = [a for a in answers if isinstance(a, Finding) and _is_worth(a) and not _told_better(a, case)]
    found.sort(key=lambda f: -f.saving_ns)
    return found[:MOST], [a for a in answers if isinstance(a, Unjudged)]


def reasons(group: Group, counters: Counters) -> list[Reason]:
    """Why a kernel group is far from its roof by its counters, the most telling first."""
    explained = (rule.explain(rule, group, counters) for rule in OF_COUNTERS if rule.explain)
    return [reason for reason in explained if reason]


def _is_worth(finding: Finding) -> bool:
    """Return whether a finding is shown: by its share of the step, or because it is not of these steps."""
    return finding.share >= WORTH or not (finding.bounded or finding.saving_ns)


def _told_better(finding: Finding, case: Case) -> bool:
    """Return whether it only says that kernels are below their roof, and others that save as much on them say why."""
    if finding.name != "below-roof":
        return False
    saved = case.explained(case.called(finding.kernels))
    return (case.unprofiled(saved) if case.on_cpu else saved) >= NEARLY * finding.saving_ns
