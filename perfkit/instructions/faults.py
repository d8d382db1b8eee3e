"""At which instructions a kernel moves needless bytes, waits for others, or spends its time, and what that costs it.

Amounts have a value for each instruction of a kernel, in its order; `places` sums them by line.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import NamedTuple

from perfkit.instructions.calls import callers
from perfkit.instructions.hot import is_atomic, operation_of, source_text
from perfkit.instructions.results import (
    EXECUTED,
    IDEAL_SECTORS,
    IDEAL_WAVEFRONTS,
    LOCAL_SECTORS,
    SAMPLES,
    SECTORS,
    THREADS_ON,
    WAVEFRONTS,
    Instruction,
    KernelCode,
)
from perfkit.instructions.waits import SCOREBOARDS, is_late, nearest, producer

MOST = 3  # lines that are named
_LEAST = 0.05  # of the amount: a line with less is not named
_FEW = 0.25  # of sectors, wavefronts or instructions: what more of them are, is the work itself
_FULL_QUEUES = ("lg_throttle", "mio_throttle")  # a warp waits to hand over this very instruction

Amounts = list[float]


class SourcePlace(NamedTuple):
    """A line of a kernel, or an instruction without one (`line` 0, `file` its address): its share of an amount."""

    file: str
    line: int
    code: str
    share: float


def places(code: KernelCode, amounts: Sequence[float]) -> list[SourcePlace]:
    """Return the lines with the most of an amount, the largest first; none where it is nothing."""
    called = callers(code)
    whole, by_line = sum(amounts), dict[tuple[str, int], tuple[float, str]]()
    for one, amount in zip(code.instructions, amounts, strict=True):
        if amount <= 0:
            continue
        key = called.get((one.file, one.line), (one.file, one.line)) if one.line else (f"+{one.at:#x}", 0)
        before, _ = by_line.get(key, (0.0, ""))
        by_line[key] = (before + amount, source_text(code, *key) if one.line else one.sass)
    order = sorted(by_line.items(), key=lambda item: -item[1][0])[:MOST]
    made = [
        SourcePlace(PurePath(file).name, line, text, amount / whole)
        for (file, line), (amount, text) in order
        if whole > 0
    ]
    return [one for one in made if one.share >= _LEAST]


def needless_sectors(code: KernelCode) -> Amounts:
    """Return the sectors of global memory that carry nothing that a thread asked for."""
    return [_excess(instruction, SECTORS, IDEAL_SECTORS) for instruction in code.instructions]


def conflicts(code: KernelCode) -> Amounts:
    """Return the wavefronts of shared memory beyond those without conflicts."""
    return [_excess(instruction, WAVEFRONTS, IDEAL_WAVEFRONTS) for instruction in code.instructions]


def wavefronts(code: KernelCode) -> float:
    """Return all wavefronts of shared memory."""
    return sum(instruction.counts.get(WAVEFRONTS, 0.0) for instruction in code.instructions)


def local_sectors(code: KernelCode) -> Amounts:
    """Return the sectors of local memory."""
    return [instruction.counts.get(LOCAL_SECTORS, 0.0) for instruction in code.instructions]


def idle_threads(code: KernelCode) -> Amounts:
    """Return the threads of executed instructions that predicates or branches switched off."""
    return [
        max(0.0, 32 * instruction.counts[EXECUTED] - instruction.counts[THREADS_ON])
        if EXECUTED in instruction.counts and THREADS_ON in instruction.counts
        else 0.0
        for instruction in code.instructions
    ]


def in_state(code: KernelCode, state: str) -> Amounts:
    """Return the samples in a state, those at a barrier or in a drain at the instruction that the warps wait in."""
    found = [0.0] * len(code.instructions)
    for place, one in enumerate(code.instructions):
        if samples := one.stalls.get(state):
            found[_cause(code, place, state)] += samples
    return found


def in_loops(code: KernelCode) -> Amounts:
    """Return the samples at instructions that run more often than the first one; at all where none does."""
    samples = [instruction.counts.get(SAMPLES, 0.0) for instruction in code.instructions]
    once = code.instructions[0].counts.get(EXECUTED, 0.0) if code.instructions else 0.0
    looped = [
        count if one.counts.get(EXECUTED, 0.0) > once else 0.0
        for one, count in zip(code.instructions, samples, strict=True)
    ]
    return looped if any(looped) else samples


def before_loops(code: KernelCode) -> Amounts:
    """Return the samples at instructions before the first that runs more often than the kernel's first one.

    Nothing where none does, or where those before it do a good part of the work: they move sectors or wavefronts.
    """
    nothing, once = [0.0] * len(code.instructions), code.instructions[0].counts.get(EXECUTED, 0.0)
    runs = [instruction.counts.get(EXECUTED, 0.0) for instruction in code.instructions]
    first = next((place for place, count in enumerate(runs) if count > once), None)
    if first is None or not once or not sum(runs):
        return nothing
    for moved in (SECTORS, WAVEFRONTS):
        amounts = [instruction.counts.get(moved, 0.0) for instruction in code.instructions]
        if sum(amounts[:first]) > _FEW * sum(amounts):
            return nothing
    if sum(runs[:first]) > _FEW * sum(runs):
        return nothing
    samples = [instruction.counts.get(SAMPLES, 0.0) for instruction in code.instructions]
    return [count if place < first else 0.0 for place, count in enumerate(samples)]


def atomic(code: KernelCode) -> list[int]:
    """Return the places of executed atomic operations."""
    found = enumerate(code.instructions)
    return [place for place, one in found if one.counts.get(EXECUTED) and is_atomic(one)]


def conflicting(code: KernelCode) -> list[int]:
    """Return the places of instructions with bank conflicts."""
    return [place for place, amount in enumerate(conflicts(code)) if amount > 0]


def waits_for(code: KernelCode, chosen: Collection[int]) -> Amounts:
    """Return the samples of waits that the instructions at `chosen` cause, by those instructions; an upper bound.

    A warp waits to hand one of them over, for its result, or for it to end. Results whose instruction is not known,
    as that of the last turn of a loop, count as theirs, by their share of the known ones.
    """
    waits, unknown = [0.0] * len(code.instructions), 0.0
    kinds = {state for state in SCOREBOARDS for place in chosen if _late(code, place, state)}
    addresses = {code.instructions[place].at: place for place in chosen}
    for place, instruction in enumerate(code.instructions):
        if place in addresses.values():
            waits[place] += sum(instruction.stalls.get(state, 0.0) for state in _FULL_QUEUES)
        for state in kinds & instruction.stalls.keys():
            awaited = producer(code.instructions, place, state)
            if awaited is None:
                unknown += instruction.stalls[state]
            elif awaited.at in addresses:
                waits[addresses[awaited.at]] += instruction.stalls[state]
        if drained := instruction.stalls.get("drain"):
            cause = _cause(code, place, "drain")
            waits[cause] += drained if cause in addresses.values() else 0.0
    known = sum(waits)
    if not known:
        return [unknown / len(chosen) if place in chosen else 0.0 for place in range(len(waits))]
    return [amount * (1 + unknown / known) for amount in waits]


def share(code: KernelCode, amounts: Sequence[float]) -> float:
    """Return what samples are of all samples of warps."""
    return min(1.0, sum(amounts) / code.samples) if code.samples else 0.0


def busy_before(code: KernelCode, barrier: int) -> SourcePlace | None:
    """Return the line between a barrier and the one before it at which warps are found most."""
    amounts = [0.0] * len(code.instructions)
    for place in range(barrier - 1, -1, -1):
        one = code.instructions[place]
        if operation_of(one).startswith("BAR."):
            break
        amounts[place] = one.counts.get(SAMPLES, 0.0) - one.stalls.get("barrier", 0.0)
    found = places(code, amounts)
    return found[0] if found else None


def _late(code: KernelCode, place: int, state: str) -> bool:
    """Return whether warps in `state` may wait for the result of an instruction; stores and reductions have none."""
    operation = operation_of(code.instructions[place])
    return is_late(state, operation) and not operation.startswith("RED")


def _cause(code: KernelCode, place: int, state: str) -> int:
    """The place of the barrier, or of the last store, that the warps at `place` wait for; else `place` itself."""
    found = nearest(code.instructions, place, state)
    return place if found is None else found


def _excess(one: Instruction, name: str, ideal: str) -> float:
    counts = one.counts
    return max(0.0, counts[name] - counts[ideal]) if name in counts and ideal in counts else 0.0
