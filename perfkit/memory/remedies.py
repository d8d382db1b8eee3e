"""Remedies, and their savings: the peak is found again without the allocations that a remedy avoids."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.memory import kinds as k
from perfkit.memory import phases
from perfkit.memory.lifetimes import Allocations, allocated_over_time
from perfkit.memory.records import FAILED, AllocatorEvents, Snapshot
from perfkit.memory.results import DeviceMemory, Remedy

WORTH = 0.01  # of the peak that a remedy has to save
EXPANDABLE = (
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets segments grow, so that free pieces lie together: the "
    "allocation that failed would have fit into what was reserved and unused, with what the device had left."
)
FUSED = (
    "fused=True, or foreach=False, has the optimizer make no lists of temporaries: AdamW(…, fused=True) steps each "
    "parameter in place."
)
NONE = (
    "zero_grad(set_to_none=True) before the forward pass frees the gradients of the step before, which were held when "
    "the forward pass failed."
)
CHECKPOINT = (
    "torch.utils.checkpoint around each block ({first} … {last}) frees what the {count} forward passes of this step "
    "retained next to their inputs."
)
MICRO = "Micro-batches of half the size, with gradients accumulated, halve what the forward pass saves."


def of_device(found: Allocations, kinds: k.Kinds, count: int, optimizes: Any, made: DeviceMemory) -> list[Remedy]:
    """Return what would lower the peak of a device, the largest saving first.

    `optimizes` is a mask of what the optimizer allocated.
    """
    held = allocated_over_time(found, count)
    candidates = [
        ("fused", FUSED, (kinds.kind == k.TEMPORARIES) & optimizes, 1.0),
        ("micro-batches", MICRO, kinds.kind == k.ACTIVATIONS, 0.5),
    ]
    useful = [
        Remedy(name=name, text=text, saves=saving)
        for name, text, mask, share in candidates
        if (saving := saved(found, held, mask, share)) >= WORTH * max(made.peak.allocated, 1)
    ]
    return _expandable(made) + sorted(useful, key=lambda one: -(one.saves or 0))


def saved(found: Allocations, held: Any, mask: Any, share: float = 1.0) -> int:
    """Return the bytes by which the peak would be lower without `share` of the allocations of `mask`."""
    if not mask.any():
        return 0
    without = held - (allocated_over_time(found, len(held) - 1, mask) * share).astype(held.dtype)
    return int(held.max() - without.max())


def _expandable(made: DeviceMemory) -> list[Remedy]:
    """Return the remedy for fragmentation, where the last allocation that failed would have fit without it."""
    if not made.failures or made.unused is None or made.unused.expandable:
        return []
    last = made.failures[-1]
    unused = (last.reserved or 0) - last.allocated
    if last.device_free is None or not last.device_free < last.bytes <= last.device_free + unused:
        return []
    return [Remedy(name="expandable segments", text=EXPANDABLE)]


def of_failure(
    snapshot: Snapshot, trace: AllocatorEvents, facts: k.StackFacts | None, made: DeviceMemory
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
    gradients = sum(part.bytes for part in made.end.parts if part.kind == k.KINDS[k.GRADIENTS])
    if in_forward and gradients:
        found.append(Remedy(name="set_to_none", text=NONE, saves=gradients))
    return sorted(found, key=lambda one: -(one.saves or 0))
