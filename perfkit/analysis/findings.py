"""What to do next: named rules over one backend's results, each finding with its evidence, bound and remedy.

`RULES` holds them; a rule takes a `BackendReport` that is complete but for its findings and yields findings. What
would save less than `WORTH` of the step is left out. There is no finding without a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perfkit.analysis import findings_kernels, findings_step
from perfkit.analysis.results import BackendReport, Finding

WORTH = 0.02  # of the step
MOST = 50

RULES: tuple[Callable[[BackendReport], Iterable[Finding]], ...] = (
    findings_kernels.explained,
    findings_kernels.below_roof,
    findings_step.gpu_idle,
    findings_step.overhead,
    findings_step.waiting,
    findings_step.copies,
    findings_step.collectives,
    findings_step.tiny_kernels,
)


def of_backend(report: BackendReport) -> list[Finding]:
    """Everything that the rules find and that is worth saying, the largest saving first."""
    found = [finding for rule in RULES for finding in rule(report) if finding.share >= WORTH]
    return sorted(found, key=lambda f: -f.saving_ns)[:MOST]
