"""The saving of checkpointing the repeated blocks of a model.

A checkpointed block frees what its forward pass saves, except for its input, and computes it again right before its
backward pass. So the memory at any moment is what it was without the activations of the blocks that are then neither
in their forward nor in their backward pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.memory import phases
from perfkit.memory.kinds import ACTIVATIONS, Kinds
from perfkit.memory.lifetimes import Allocations, allocated_over_time
from perfkit.memory.records import AllocatorEvents
from perfkit.memory.remedies import WORTH
from perfkit.memory.results import Remedy

NAME = "checkpointing"
_MOST = 512  # blocks
TEXT = (
    "torch.utils.checkpoint around each of the {count} blocks {layers} frees what their forward passes save, and "
    "computes it again in the backward pass."
)


def checkpointing(
    found: Allocations, kinds: Kinds, trace: AllocatorEvents, places: tuple[Any, Sequence[str]], layers: str
) -> list[Remedy]:
    """Return the remedy of checkpointing the blocks that `layers`, such as `h.*`, names.

    `places` are the phase and the module of each stack number.
    """
    if "*" not in layers:
        return []
    phase, modules = places
    pattern = re.compile(re.escape(layers).replace(r"\*", r"(\d+)", 1) + r"(?:\.|$)")
    number_of = np.array([int(m[1]) if (m := pattern.match(module)) else -1 for module in modules])
    saved_in = (kinds.kind == ACTIVATIONS) & ~kinds.known & (phase[found.stack] == phases.FORWARD)
    block = np.where(saved_in, number_of[found.stack], -1)
    held = allocated_over_time(found, len(trace))
    without = held.copy()
    numbers = np.unique(block[block >= 0])[:_MOST].tolist()
    for number in numbers:
        mine = block == number
        events = np.flatnonzero(number_of[trace.stack] == number)
        windows = _windows(events, phase[trace.stack[events]])
        for first, last in windows:  # the output is the next block's input, and stays
            made = np.flatnonzero(mine & (found.begin >= first) & (found.begin <= last))
            mine[made[-1:]] = False
        saved = allocated_over_time(found, len(trace), mine)
        for first, last in windows:
            saved[first + 1 : last + 2] = 0
        without -= saved
    saves = int(held.max() - without.max())
    if saves < WORTH * max(int(held.max()), 1):
        return []
    return [Remedy(name=NAME, text=TEXT.format(count=len(numbers), layers=layers), saves=saves)]


def _windows(events: Any, phase: Any) -> list[tuple[int, int]]:
    """The first and the last event of each forward and each backward pass of a block: they take turns."""
    if not len(events):
        return []
    turns = np.flatnonzero(np.diff(phase)) + 1
    firsts, lasts = events[np.append(0, turns)], events[np.append(turns - 1, len(events) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
