"""What to do next: what the rules find in one backend's results, each with its evidence, bound and remedy.

The rules are in `perfkit.analysis.rules`. What would save less than `WORTH` of the step is left out. There is no
finding without a figure; a rule that cannot judge the profile says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from perfkit.analysis import findings_kernels, findings_step, rules
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.rules import Case
from perfkit.analysis.source import NCU

WORTH = 0.02  # of the step
MOST = 50
NEARLY = 0.8  # of the time, and of the saving, that another finding explains


def of_case(case: Case) -> tuple[list[Finding], list[Unjudged]]:
    """Everything that the rules find and that is worth saying, the largest saving first; and what cannot be judged."""
    answers = [_bounded(answer, case) for answer in _answers(case)]
    found = [a for a in answers if isinstance(a, Finding) and a.share >= WORTH and not _told_better(a, case)]
    found.sort(key=lambda f: -f.saving_ns)
    return found[:MOST], [a for a in answers if isinstance(a, Unjudged)]


def _bounded(answer: Finding | Unjudged, case: Case) -> Finding | Unjudged:
    """An answer that saves no more than the step takes: a profiled step may be longer than the timed one."""
    if isinstance(answer, Unjudged) or not case.step_ns or answer.saving_ns <= case.step_ns:
        return answer
    return msgspec.structs.replace(answer, saving_ns=case.step_ns, share=min(answer.share, 1.0))


def _told_better(finding: Finding, case: Case) -> bool:
    """Whether it only says that kernels are below their roof, and others that save as much say why of most of them."""
    if finding.name != "below-roof":
        return False
    names = case.frame["short_name"].fillna(case.frame["name"])
    own = names.isin(finding.kernels).to_numpy(bool)
    explained = np.zeros(len(own), bool)
    for other, rows in case.claims:
        if other.share >= WORTH and other.saving_ns >= NEARLY * finding.saving_ns:
            explained |= rows
    return case.time(own & explained) >= NEARLY * case.time(own) > 0


def _answers(case: Case) -> Iterator[Finding | Unjudged]:
    yield from findings_kernels.explained(case.report)
    yield from findings_step.copies(case.report)
    of_steps = case.report.kind != NCU  # kernels that ncu measured one by one are no step
    for rule in rules.RULES if of_steps else rules.OF_KERNELS:
        if rule.find is not None:
            yield from rule.find(rule, case)
