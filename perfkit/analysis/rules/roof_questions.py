"""Questions on a kernel group's roof and counters that the rules over counters ask first.

A rule that waiting for memory or instructions explains (occupancy, stalls) speaks only where no level of the GPU is
busy: what keeps L2 or the multiprocessors at 60 % of their peak is limited by them, not by waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from perfkit.analysis.line_results import SourceLine
from perfkit.analysis.results import Finding, Group, Reason
from perfkit.analysis.roofline.counters import Counters
from perfkit.analysis.roofline.excluded import BUSY
from perfkit.analysis.rules.base import Case, Rule
from perfkit.analysis.words import call, capital, percent
from perfkit.instructions import faults
from perfkit.instructions.results import KernelCode

NEAR = 0.8  # of its roof: nothing is asked of a kernel that reaches this much


def near(g: Group) -> bool:
    """Return whether it is close enough to its roof to be left alone."""
    return g.efficiency is not None and g.efficiency >= NEAR


def by_memory(g: Group) -> bool:
    """Return whether device memory or L2 sets its roof."""
    return g.bound in ("memory", "l2")


def below_its_memory(g: Group, c: Counters) -> bool:
    """Return whether device memory is what it uses most, and it does not come near to what that can do."""
    return g.bound == "memory" and not near(g) and c.busiest is not None and c.busiest[0] == "DRAM"


def waiting(g: Group, c: Counters) -> bool:
    """Return whether it is far from its roof, if that is known, and no level is busy, as far as the report shows."""
    if g.withheld or (g.efficiency is None and c.busiest is None):
        return False
    far = g.efficiency is None or g.efficiency < BUSY
    return far and (c.busiest is None or c.busiest[1] < BUSY)


def part_of_a_wave(c: Counters) -> bool:
    """Return whether all blocks fit on the GPU at once: then no limit of the blocks of a multiprocessor matters."""
    return c.waves is not None and c.waves < 1


def left(g: Group, c: Counters) -> float | None:
    """Return the saving of reaching the roof; without one, what the busiest level leaves to its peak."""
    if g.headroom_ns is not None:
        return g.headroom_ns
    return g.time_ns * (1 - c.busiest[1]) if c.busiest else None


_UNEVEN = 0.8  # of the evenness that the number of blocks allows


def uneven(c: Counters) -> bool:
    """Return whether multiprocessors wait for the last one longer than the number of blocks explains."""
    if c.evenness is None or not c.blocks or not c.multiprocessors or c.blocks < c.multiprocessors:
        return False
    each = c.blocks / c.multiprocessors
    return c.evenness < _UNEVEN * each / math.ceil(each)


def lines(c: Counters, amounts: Callable[[KernelCode], Sequence[float]]) -> list[SourceLine]:
    """The lines of a kernel with most of an amount, or its instructions; none where the report has none of them."""
    if c.code is None:
        return []
    return [
        SourceLine(file=one.file, line=one.line, function=c.code.name, share=one.share, code=one.code)
        for one in faults.places(c.code, amounts(c.code))
    ]


def main_reason(group: Group) -> Reason | None:
    """The first of a group's reasons that bounds a saving: the one to fix first."""
    return next((reason for reason in group.reasons if reason.saving_ns is not None), None)


def explained(rule: Rule, case: Case) -> Iterator[Finding]:
    """A finding for each kernel group whose main reason is this rule's."""
    for group in case.report.kernels:
        reason = main_reason(group)
        if reason is None or reason.saving_ns is None or reason.name != rule.name:
            continue
        others = [capital(r.text) for r in group.reasons if r is not reason]
        yield rule.finding(
            case,
            f"{call(group)}: {reason.label}",
            " ".join([capital(reason.text), *others, *_roof(group)]),
            group.time_ns,
            reason.saving_ns,
            count=group.count,
            kernels=[group.key],
            remedy=reason.remedy,
            lines=reason.lines,
        )


def _roof(group: Group) -> list[str]:
    if group.efficiency is None:
        return []
    return [f"It runs at {percent(group.efficiency)} of its roof: {group.ceiling}."]
