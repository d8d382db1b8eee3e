"""What to do next: what the rules find in one backend's results, each with its evidence, bound and remedy.

The rules are in `perfkit.analysis.rules`. What would save less than `WORTH` of the step is left out. There is no
finding without a figure; a rule that cannot judge the profile says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfkit.analysis import findings_kernels, findings_step, rules
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.rules import Case
from perfkit.analysis.source import NCU

WORTH = 0.02  # of the step
MOST = 50


def of_case(case: Case) -> tuple[list[Finding], list[Unjudged]]:
    """Everything that the rules find and that is worth saying, the largest saving first; and what cannot be judged."""
    answers = list(_answers(case))
    found = [a for a in answers if isinstance(a, Finding) and a.share >= WORTH]
    found.sort(key=lambda f: -f.saving_ns)
    return _untold(found)[:MOST], [a for a in answers if isinstance(a, Unjudged)]


def _answers(case: Case) -> Iterator[Finding | Unjudged]:
    yield from findings_kernels.explained(case.report)
    yield from findings_step.copies(case.report)
    of_steps = case.report.kind != NCU  # kernels that ncu measured one by one are no step
    for rule in rules.RULES if of_steps else rules.OF_KERNELS:
        if rule.find is not None:
            yield from rule.find(rule, case)


def _untold(found: Sequence[Finding]) -> list[Finding]:
    """Without those that only say that kernels are below their roof where a larger finding says why."""
    told: set[str] = set()
    kept = []
    for finding in found:
        if finding.name == "below-roof" and finding.kernels and set(finding.kernels) <= told:
            continue
        kept.append(finding)
        told |= set(finding.kernels) if finding.name != "below-roof" else set()
    return kept
