"""The kind of each allocation: what it holds, and how that is known.

KNOWN comes from the program's own objects. INFERRED comes from the stack that allocated, the one that freed, and which
passes it lived through; docs/memory.md says by which rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit.memory import phases
from perfkit.memory.lifetimes import BEFORE, Allocations
from perfkit.memory.records import FAILED, Device, Snapshot

KINDS = (
    "parameters", "buffers", "gradients", "optimizer state", "activations", "inputs", "temporaries", "workspaces",
    "caches", "unknown",
)  # fmt: skip
(PARAMETERS, BUFFERS, GRADIENTS, STATE, ACTIVATIONS, INPUTS, TEMPORARIES, WORKSPACES, CACHES, UNKNOWN) = range(10)
# Bytes that cuBLAS gets of PyTorch by default: CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8, and :4096:8 on Hopper.
_CUBLAS = (4096 * 1024 * 2 + 16 * 1024 * 8, 4096 * 1024 * 8)


@dataclass
class Kinds:
    """The kind of each allocation, whether the program itself said so, and the name that it gave (-1: none)."""

    kind: Any
    known: Any
    name: Any
    names: list[str]


def kinds_of(snapshot: Snapshot, device: Device, found: Allocations) -> Kinds:
    """Return the kind of each of `found`, which are the allocations of `device`."""
    made = Kinds(np.full(len(found), UNKNOWN), np.zeros(len(found), bool), np.full(len(found), -1), [])
    if any(snapshot.stacks):
        _infer(made.kind, _Passes(snapshot, device), snapshot, found)
    numbers: dict[str, int] = {}
    known = snapshot.known.get(device.index, {})
    for index in (found.end == len(device.trace)).nonzero()[0] if known else ():
        told = known.get(int(found.address[index]))
        if told is not None:
            made.kind[index], made.known[index] = KINDS.index(told.kind), True
            made.name[index] = numbers.setdefault(told.name, len(numbers))
    made.names = list(numbers)
    return made


class _Passes:
    """The phase of each event, and where backward passes and optimizer steps begin and end."""

    def __init__(self, snapshot: Snapshot, device: Device) -> None:
        trace = device.trace
        self.of_stack = phases.table(snapshot.stacks, phases.phase_of, int)
        phase = self.of_stack[trace.stack]
        # The thread of backward passes has no frames of Python's: where others have some, it is the one without.
        phase = np.where(trace.stack == 0, phases.BACKWARD, phase)
        self.count = len(trace)
        self.failed = bool((trace.action == FAILED).any())
        self.backward = _runs(phase == phases.BACKWARD)
        self.optimizer = _runs(phase == phases.OPTIMIZER)

    def begun_after(self, moment: Any) -> Any:
        """The first backward pass that begins after each moment: its number."""
        return np.searchsorted(self.backward[0], moment, side="right")

    def start(self, number: Any) -> Any:
        """The first event of each backward pass; the end of the trace for one that is not there."""
        return np.append(self.backward[0], self.count + 1)[np.minimum(number, len(self.backward[0]))]

    def end_of(self, runs: tuple[Any, Any], moment: Any) -> Any:
        """The last event of the run that each moment is in, or that began before it."""
        return np.append(runs[1], -1)[np.searchsorted(runs[0], moment, side="right") - 1]

    def in_backward(self, moment: Any) -> Any:
        """A mask of the moments in a backward pass."""
        number = np.searchsorted(self.backward[0], moment, side="right") - 1
        return (number >= 0) & (np.append(self.backward[1], -1)[number] >= moment)


def _runs(mask: Any) -> tuple[Any, Any]:
    """The first and the last index of each stretch of true values."""
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    return (edges == 1).nonzero()[0], (edges == -1).nonzero()[0] - 1


def _infer(kind: Any, passes: _Passes, snapshot: Snapshot, found: Allocations) -> None:
    """Set the kinds that follow from stacks and lifetimes; the others stay unknown."""
    traced = found.begin != BEFORE
    phase = np.where(traced & (found.stack == 0), phases.BACKWARD, passes.of_stack[found.stack])
    stays = found.end == passes.count
    kind[phase == phases.BACKWARD] = TEMPORARIES
    kind[(phase == phases.BACKWARD) & traced & (found.end > passes.end_of(passes.backward, found.begin))] = GRADIENTS
    again = phases.table(snapshot.stacks, phases.recomputes)[found.stack]
    kind[(phase == phases.BACKWARD) & (kind == TEMPORARIES) & again] = ACTIVATIONS

    optimizes = phase == phases.OPTIMIZER
    kind[optimizes] = TEMPORARIES
    makes_state = phases.table(snapshot.stacks, phases.initialises)[found.stack]
    outlives = ~traced | (found.end > passes.end_of(passes.optimizer, found.begin))
    kind[optimizes & ((makes_state & outlives) | (stays & outlives))] = STATE

    kind[phase == phases.BUILD] = np.where(stays, PARAMETERS, TEMPORARIES)[phase == phases.BUILD]
    _of_forward(kind, passes, found, phase)
    _from_before(kind, passes, snapshot, found)
    named = phases.table(snapshot.stacks, lambda stack: any("cache" in frame.function.lower() for frame in stack[:6]))
    kind[np.isin(phase, (phases.FORWARD, phases.OUTSIDE)) & (kind == UNKNOWN) & named[found.stack]] = CACHES
    asked = np.isin(found.requested, _CUBLAS) & stays & (phase != phases.BUILD)
    kind[phases.table(snapshot.stacks, phases.is_workspace)[found.stack] | asked] = WORKSPACES


def _of_forward(kind: Any, passes: _Passes, found: Allocations, phase: Any) -> None:
    """Set what a forward pass, or the program outside of modules, allocated: by the backward passes it lived into."""
    called = phase == phases.FORWARD
    mine = called | (phase == phases.OUTSIDE)
    first = passes.begun_after(found.begin)
    lives_into = found.end > passes.start(first)
    second = found.end > passes.start(first + 1)
    in_backward = passes.in_backward(found.end)
    stays = found.end == passes.count
    kind[mine & ~lives_into & ~stays] = TEMPORARIES
    kind[mine & lives_into & ~second & (called | in_backward)] = ACTIVATIONS
    kind[mine & lives_into & ~second & ~called & ~in_backward] = INPUTS
    # The pass that would free it has not begun: it is what the same line made in steps before, else what a module made.
    unfinished = mine & stays & ~lives_into
    kind[unfinished & called & (passes.failed | (len(passes.backward[0]) > 0))] = ACTIVATIONS
    before = dict(zip(found.stack[mine & lives_into].tolist(), kind[mine & lives_into].tolist(), strict=True))
    for index in unfinished.nonzero()[0].tolist():
        kind[index] = before.get(int(found.stack[index]), kind[index])


def _from_before(kind: Any, passes: _Passes, snapshot: Snapshot, found: Allocations) -> None:
    """Set what the trace only frees: by who freed it."""
    before = (found.begin == BEFORE) & (found.end < passes.count) & (found.stack == 0)
    zeroes = phases.table(snapshot.stacks, lambda stack: any(f.function == "zero_grad" for f in stack))
    kind[before & passes.in_backward(found.end)] = ACTIVATIONS
    kind[before & zeroes[found.freed_by]] = GRADIENTS
