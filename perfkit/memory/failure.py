"""Remedies for an allocation that failed, by the memory that was held at that moment."""

from __future__ import annotations

import numpy as np

from perfkit.memory import phases
from perfkit.memory.kinds import GRADIENTS, KINDS, StackFacts
from perfkit.memory.records import FAILED, AllocatorEvents, Snapshot
from perfkit.memory.results import DeviceMemory, Remedy

NONE = (
    "zero_grad(set_to_none=True) before the forward pass frees the gradients of the step before, which were held when "
    "the forward pass failed."
)
CHECKPOINT = (
    "torch.utils.checkpoint around each block ({first} … {last}) frees what the {count} forward passes of this step "
    "retained next to their inputs."
)


def of_failure(
    snapshot: Snapshot, trace: AllocatorEvents, facts: StackFacts | None, made: DeviceMemory
) -> list[Remedy]:
    """Return what would have freed memory when the last allocation failed, the largest saving first."""
    assert made.end is not None
    found = []
    if snapshot.blocks:
        saves = sum(block.size for block in snapshot.blocks)
        times = [block.took_ns for block in snapshot.blocks if block.took_ns is not None]
        costs = sum(times) if len(times) == len(snapshot.blocks) else None
        first, last = snapshot.blocks[0].path, snapshot.blocks[-1].path
        text = CHECKPOINT.format(first=first, last=last, count=len(snapshot.blocks))
        found.append(Remedy(name="checkpointing", text=text, saves=saves, costs_ns=costs))
    failed = np.flatnonzero(trace.action == FAILED)[-1]
    in_forward = facts is not None and facts.phase[trace.stack[failed]] == phases.FORWARD
    gradients = sum(part.bytes for part in made.end.parts if part.kind == KINDS[GRADIENTS])
    if in_forward and gradients:
        found.append(Remedy(name="set_to_none", text=NONE, saves=gradients))
    return sorted(found, key=lambda one: -(one.saves or 0))
