"""CUDA_DEVICE_MAX_CONNECTIONS=1: kernels of all streams share one queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from perfkit.analysis.results import Unjudged
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import SEVERAL_GPUS, RanksCase, RanksRule
from perfkit.units import text

_AT_ONCE_NS = 10e3  # between two starts that one thing held up, and from the end of a kernel to the next of its stream
_GAP_NS = 30e3  # that computation waits at least
_CALLS = 2  # held up in a step, to be recognised by that alone


def _one_queue(rule: RanksRule, case: RanksCase) -> Iterator[RanksFinding | Unjudged]:
    said = case.environment.get("gpu_queues")
    held = [_held_up(member) for member in case.members if member.on_gpu]
    if not held or said not in (None, "1"):
        return  # the run has more queues, or none is known to be the only one
    numbers = [len(gaps) / case.steps for gaps, _ in held]
    worst = int(np.argmax([gaps.sum() for gaps, _ in held]))
    gaps, passed = held[worst]
    if said is None and (max(numbers) < _CALLS or passed):
        return
    time = float(gaps.sum()) / case.steps
    rank = [m.rank for m in case.members if m.on_gpu][worst]
    known = (
        "The run's environment says so." if said == "1" else "Its kernels behave as they do with the variable set to 1."
    )
    yield rule.finding(
        case,
        "Kernels of all streams share one queue (CUDA_DEVICE_MAX_CONNECTIONS=1)",
        f"{known} On rank {rank} computation waits {numbers[worst]:.1f} times a step, {text(time, 'ns')} "
        "together, until a collective launched before it gets its turn, though it does not need what that brings.",
        time,
        time,
        ranks=[rank],
        count=numbers[worst],
    )


def _held_up(member: RankTable) -> tuple[np.ndarray, int]:
    """How long computation stood still each time it began together with a collective that had been waiting (ns), and
    how many kernels launched after a waiting collective passed it.

    A collective waits in its stream when it begins as the one before it ends. Kernels launched later that begin before
    it have a queue of their own.
    """
    talks = np.flatnonzero(member.is_collective & (member.step >= 0))
    compute = np.flatnonzero(member.is_compute & (member.step >= 0))
    if len(talks) < 2 or not len(compute):
        return np.zeros(0), 0
    order, stream = member.frame["order"].to_numpy(np.int64), member.frame["stream"].to_numpy(float, na_value=-1)
    start, end = member.start, member.end
    talks = talks[np.argsort(order[talks], kind="stable")]
    compute = compute[np.argsort(order[compute], kind="stable")]
    gaps, passed = [], 0
    for before, held in pairwise(talks.tolist()):
        queued = stream[before] == stream[held] and 0 <= start[held] - end[before] <= _AT_ONCE_NS
        after = int(np.searchsorted(order[compute], order[held]))
        if not queued or member.step[before] != member.step[held] or not 0 < after < len(compute):
            continue
        begins = start[compute[after]]
        passed += begins < start[held]
        gap = begins - end[compute[after - 1]]
        if 0 <= begins - start[held] <= _AT_ONCE_NS and gap >= _GAP_NS:
            gaps.append(min(gap, begins - start[before]))
    return np.array(gaps, float), int(passed)


RULES = (
    RanksRule(
        name="one-queue",
        summary="CUDA_DEVICE_MAX_CONNECTIONS=1 makes computation wait for collectives that it does not need",
        where=SEVERAL_GPUS,
        what="With one queue between host and GPU, a collective that waits for its turn keeps back all kernels "
        "launched after it, of every stream. Megatron's tensor parallelism wants that order; FSDP loses overlap.",
        recognised="The environment of the run. In other traces: twice a step or more computation begins within 10 µs "
        "of a collective that had waited for the one before it, after standing still for 30 µs or more, and no kernel "
        "launched later ever passes such a collective.",
        estimate="The time in which computation stood still so.",
        remedies=("Unset CUDA_DEVICE_MAX_CONNECTIONS (8 queues), or set it to 32, where FSDP or DDP is used.",),
        example="A launch script for Megatron, used for FSDP.",
        find=_one_queue,
        rank=6,
    ),
)
