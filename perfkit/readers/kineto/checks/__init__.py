"""Checks that every trace must pass before a number is made from it; docs/numbers.md lists them.

A check holds, fails, or does not apply (a trace without a GPU has no clocks to compare). Its limits are those that
sound traces keep, old ones with whole µs and trimmed ones too. A profile that fails a check which its numbers need is
unusable: `refuse` raises. What holds with a remark, or fails a check that only some numbers need, leaves a footnote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perfkit.readers.kineto.checks import amounts, clock, pairs, steps
from perfkit.readers.kineto.checks.evidence import CheckOutcome, Evidence, Expected
from perfkit.readers.unusable import UnusableProfile
from perfkit.run_folder import TraceCheck

__all__ = ["Evidence", "Expected", "refuse", "run"]

_CHECKS: dict[str, tuple[str, Callable[[Evidence], CheckOutcome]]] = {
    "times": ("activities have times", amounts.times),
    "launches": ("every launch has its kernel, and every kernel its launch", pairs.launches),
    "clock": ("the clocks of host and GPU agree", clock.clocks),
    "steps": ("all steps are there, and kernels ran in the steps that launched them", steps.in_steps),
    "sum": ("busy and idle time add up to the step", amounts.parts),
    "busy": ("busy time is no longer than the step", amounts.busy),
    "timed": ("the timed step takes at least the busy time", amounts.timed),
    "annotations": ("the trace's annotations of the GPU agree with its kernels", steps.agree),
}


def run(evidence: Evidence) -> list[tuple[TraceCheck, str]]:
    """Every check, always in the same order, with what to do where it fails."""
    return [(_trace_check(name, says, found := check(evidence)), found.hint) for name, (says, check) in _CHECKS.items()]


def _trace_check(name: str, says: str, found: CheckOutcome) -> TraceCheck:
    return TraceCheck(
        name=name,
        says=says,
        holds=found.holds,
        figure=found.figure,
        unit=found.unit,
        events=found.events,
        of=found.of,
        needed=found.needed,
        sentence=found.sentence,
    )


def refuse(path: Path, found: Sequence[tuple[TraceCheck, str]]) -> None:
    """Raise `UnusableProfile`, which names the first, where a check that numbers need does not hold."""
    failed = [(check, hint) for check, hint in found if check.holds is False and check.needed]
    if failed:
        (first, hint), *more = failed
        also = f" (these checks fail too: {', '.join(check.name for check, _ in more)})" if more else ""
        raise UnusableProfile(str(path), f"{first.sentence}{also}", hint, [check for check, _ in found])
