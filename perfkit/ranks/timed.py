"""Savings of the step without a profiler, where a run timed it: what ranks wait under the profiler they need not wait
without it, and nothing saves more than the step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from perfkit.ranks.results import RanksFinding, RanksReport, WhatIf
from perfkit.units import text

_APART = 1.5  # times as long as without the profiler: then waiting may be the profiler's, or of a busy machine


def with_timed_steps(report: RanksReport, samples_ns: Sequence[Sequence[float]]) -> RanksReport:
    """The report with the timed step of its ranks, whose samples are given; savings shrink as the step does."""
    timed_steps = [float(np.median(samples)) for samples in samples_ns if len(samples)]
    if not timed_steps:
        return report
    timed, profiled = max(timed_steps), report.step_ns.value
    factor = min(timed / profiled, 1.0)
    said = []
    if profiled > _APART * timed:
        said.append(
            f"The profiled steps took {text(profiled, 'ns')}, {profiled / timed:.1f} times as long as those without "
            f"the profiler ({text(timed, 'ns')}): a part of the waiting may be due to it, or to a busy machine. "
            "Savings are of the step without it."
        )
    return msgspec.structs.replace(
        report,
        timed_step_ns=timed,
        what_ifs=[_what_if(what_if, factor) for what_if in report.what_ifs],
        findings=[_finding(finding, factor) for finding in report.findings],
        problems=[*report.problems, *said],
    )


def _what_if(one: WhatIf, factor: float) -> WhatIf:
    return msgspec.structs.replace(one, step_ns=one.step_ns * factor, saves_ns=one.saves_ns * factor)


def _finding(one: RanksFinding, factor: float) -> RanksFinding:
    low, high = one.saving_low_ns, one.saving_high_ns
    return msgspec.structs.replace(
        one,
        saving_ns=one.saving_ns * factor,
        saving_low_ns=None if low is None else low * factor,
        saving_high_ns=None if high is None else high * factor,
    )
