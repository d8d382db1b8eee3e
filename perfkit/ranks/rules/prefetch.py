"""Parameters that are gathered only when the computation before has ended."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import SEVERAL_GPUS, RanksCase, RanksRule
from perfkit.units import text

_NEAR_NS = 50e3  # from the end of computation to the gather, and from its end to computation: the GPU was kept busy
_MOST_COVERED = 0.1  # of the gather


def _late_gathers(rule: RanksRule, case: RanksCase) -> Iterator[RanksFinding]:
    gathers = np.array([o == "all_gather" for o in case.matched.operation], bool)
    worst: tuple[float, int, int, int] | None = None
    for i, member in enumerate(case.members):
        calls = np.flatnonzero(gathers & (case.matched.rows[:, i] >= 0))
        first = {int(case.matched.step[k]): int(k) for k in calls[::-1]}
        later = np.array([k for k in calls.tolist() if first[int(case.matched.step[k])] != k], int)
        if not member.on_gpu or not len(later):
            continue
        between = later[_between(case, i, member, later)]
        exposed = float(case.exposed[between, i].sum()) / case.steps
        if 2 * len(between) >= len(later) and (worst is None or exposed > worst[0]):
            worst = exposed, i, len(between), len(later)
    if worst is None:
        return
    exposed, i, found, of = worst
    yield rule.finding(
        case,
        f"All-gathers of {text(exposed, 'ns')} a step start only when the computation before has ended",
        f"On rank {case.members[i].rank} {found} of {of} all-gathers after the first of a step begin when computation "
        "ends, and computation goes on when they end: nothing was gathered ahead.",
        exposed,
        exposed,
        ranks=[case.members[i].rank],
        count=found / case.steps,
    )


def _between(case: RanksCase, column: int, member: RankTable, calls: np.ndarray) -> np.ndarray:
    """Return whether each of `calls` is between two computations, with nothing next to it and no gap around it (flags).

    At a gap the host is late, which prefetching does not change. Waiting for another rank does not count as the gather.
    """
    start, end = (times[calls, column] for times in case.span)
    chosen = member.is_compute & (member.step >= 0)
    begins = np.sort(member.start[chosen])
    union = case.computing[column]
    if not len(begins):
        return np.zeros(len(calls), bool)
    covered = union.until(end) - union.until(start)
    at = np.searchsorted(union.start, start, side="right") - 1
    before = np.where(at >= 0, union.end[np.maximum(at, 0)], -np.inf)
    after = np.searchsorted(begins, end, side="left")
    resumes = np.where(after < len(begins), begins[np.minimum(after, len(begins) - 1)], np.inf)
    near = (start - before <= _NEAR_NS) & (resumes - end <= _NEAR_NS)
    return near & (covered <= _MOST_COVERED * (end - start))


RULES = (
    RanksRule(
        name="no-prefetch",
        summary="parameters are gathered only when the computation before has ended",
        where=SEVERAL_GPUS,
        what="With FSDP each block needs its parameters from all ranks. Gathered while the block before computes, they "
        "cost nothing; gathered when it has ended, the GPU waits for the links.",
        recognised="At least half of the all-gathers after the first of a step begin within 50 µs of the end of "
        "computation, have none next to them, and are followed by computation within 50 µs. Where the GPU idles around "
        "them, the host is late, and this rule is silent.",
        estimate="The exposed transfer of those gathers, on the rank with the most.",
        remedies=(
            "FSDP2: set_modules_to_forward_prefetch and set_modules_to_backward_prefetch; fully_shard each block as a "
            "unit of its own. FSDP1: forward_prefetch=True, backward_prefetch=BACKWARD_PRE.",
        ),
        example="A block's hook that gathers with async_op=False.",
        find=_late_gathers,
        rank=5,
    ),
)
