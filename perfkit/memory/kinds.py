"""The kind of each allocation: what it holds, and how that is known.

KNOWN comes from the program's own objects. INFERRED comes from the stack that allocated, the one that freed, and which
passes it lived through; docs/memory.md says by which rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit.memory import phases
from perfkit.memory.lifetimes import BEFORE, Allocations
from perfkit.memory.records import FAILED, FREE, FREED, OTHER, AllocatorEvents, NamedTensor, Stack

KINDS = (
    "parameters", "buffers", "gradients", "optimizer state", "activations", "inputs", "temporaries", "workspaces",
    "caches", "unknown",
)  # fmt: skip
(PARAMETERS, BUFFERS, GRADIENTS, STATE, ACTIVATIONS, INPUTS, TEMPORARIES, WORKSPACES, CACHES, UNKNOWN) = range(10)
# Bytes that cuBLAS gets of PyTorch by default: CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8, and :4096:8 on Hopper.
_CUBLAS = (4096 * 1024 * 2 + 16 * 1024 * 8, 4096 * 1024 * 8)
_WORKSPACES = (
    2  # of that size: one for cuBLAS and one for cuBLASLt, made at the first product; 32 MiB may be a tensor's
)


@dataclass
class Kinds:
    """The kind of each allocation, whether the program itself said so, and the name that it gave (-1: none)."""

    kind: Any
    known: Any
    name: Any
    names: list[str]


@dataclass
class StackFacts:
    """Facts about each stack, a column each: the phase of a program, and what else a stack says of an allocation.

    `unseen` is the phase of events without a stack, where other events have one. The thread of backward passes has no
    frames of Python's: where others have some, it is the one without.
    """

    phase: Any
    recomputes: Any
    initialises: Any
    zeroes: Any
    caches: Any
    workspace: Any
    unseen: int = phases.BACKWARD

    @classmethod
    def of(cls, stacks: Sequence[Stack]) -> StackFacts:
        """Return what stacks of frames say."""
        return cls(
            phases.table(stacks, phases.phase_of, int),
            phases.table(stacks, phases.recomputes),
            phases.table(stacks, phases.initialises),
            phases.table(stacks, lambda stack: any(frame.function == "zero_grad" for frame in stack)),
            phases.table(stacks, lambda stack: any("cache" in frame.function.lower() for frame in stack[:6])),
            phases.table(stacks, phases.is_workspace),
        )


def kinds_of(
    facts: StackFacts | None, trace: AllocatorEvents, found: Allocations, known: Iterable[tuple[int, int, NamedTensor]]
) -> Kinds:
    """Return the kind of each of `found`, which the events of `trace` made.

    `known` are moments, addresses, and what a program's objects have there at the time. Without `facts`,
    the facts about stacks, the rest is unknown.
    """
    made = Kinds(np.full(len(found), UNKNOWN), np.zeros(len(found), bool), np.full(len(found), -1), [])
    if facts is not None:
        _infer(made.kind, _Passes(facts, trace), facts, found)
    _name(made, found, known)
    return made


def _name(made: Kinds, found: Allocations, known: Iterable[tuple[int, int, NamedTensor]]) -> None:
    """Set the kinds and names that the program's objects give."""
    numbers: dict[str, int] = {}
    at: dict[int, list[int]] = {}
    for index, address in enumerate(found.address.tolist()):
        at.setdefault(address, []).append(index)
    for moment, address, said in known:
        for index in at.get(address, ()):
            if found.begin[index] <= moment < found.end[index] and not made.known[index]:
                made.kind[index], made.known[index] = KINDS.index(said.kind), True
                made.name[index] = numbers.setdefault(said.name, len(numbers))
    made.names = list(numbers)


class _Passes:
    """The phase of each event, and where backward passes and optimizer steps begin and end."""

    def __init__(self, facts: StackFacts, trace: AllocatorEvents) -> None:
        self.of_stack = facts.phase
        self.count = len(trace)
        self.unseen = facts.unseen if trace.stack.any() else phases.UNKNOWN
        says = _says(trace)
        latest = np.maximum.accumulate(np.where(says, np.arange(self.count), -1))
        phase = np.where(trace.stack == 0, self.unseen, self.of_stack[trace.stack])[latest]
        phase[latest < 0] = phases.UNKNOWN
        self.failures = np.flatnonzero(trace.action == FAILED)
        self.backward = _runs(phase == phases.BACKWARD)
        self.optimizer = _runs(phase == phases.OPTIMIZER)

    def failed_in(self, begin: Any, end: Any) -> Any:
        """A mask of those during which an allocation failed: its program gave up what it was about."""
        return np.searchsorted(self.failures, end) > np.searchsorted(self.failures, begin)

    def begun_after(self, moment: Any) -> Any:
        """The first backward pass that begins after each moment: its number."""
        return np.searchsorted(self.backward[0], moment, side="right")

    def start(self, number: Any) -> Any:
        """The first event of each backward pass; the end of the trace for one that is missing."""
        return np.append(self.backward[0], self.count + 1)[np.minimum(number, len(self.backward[0]))]

    def end_of(self, runs: tuple[Any, Any], moment: Any) -> Any:
        """The last event of the run that each moment is in, or that began before it."""
        return np.append(runs[1], -1)[np.searchsorted(runs[0], moment, side="right") - 1]

    def in_backward(self, moment: Any) -> Any:
        """A mask of the moments in a backward pass."""
        number = np.searchsorted(self.backward[0], moment, side="right") - 1
        return (number >= 0) & (np.append(self.backward[1], -1)[number] >= moment)


def _says(trace: AllocatorEvents) -> Any:
    """Return a mask of the events whose stacks, or the lack of one, say what the program does.

    The others belong to the event before: a snapshot's has no stack, and with `context="alloc"` a free has none.
    """
    frees = np.isin(trace.action, (FREE, FREED))
    return (trace.action != OTHER) & (~frees | trace.stack[frees].any())


def _runs(mask: Any) -> tuple[Any, Any]:
    """The first and the last index of each stretch of true values."""
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    return (edges == 1).nonzero()[0], (edges == -1).nonzero()[0] - 1


def _infer(kind: Any, passes: _Passes, facts: StackFacts, found: Allocations) -> None:
    """Set the kinds that follow from stacks and lifetimes; the others stay unknown."""
    traced = found.begin != BEFORE
    phase = np.where(traced & (found.stack == 0), passes.unseen, passes.of_stack[found.stack])
    stays = found.end == passes.count
    kind[phase == phases.BACKWARD] = TEMPORARIES
    kind[(phase == phases.BACKWARD) & traced & (found.end > passes.end_of(passes.backward, found.begin))] = GRADIENTS
    kind[(phase == phases.BACKWARD) & (kind == TEMPORARIES) & facts.recomputes[found.stack]] = ACTIVATIONS

    optimizes = phase == phases.OPTIMIZER
    kind[optimizes] = TEMPORARIES
    makes_state = facts.initialises[found.stack]
    outlives = ~traced | (found.end > passes.end_of(passes.optimizer, found.begin))
    kind[optimizes & ((makes_state & outlives) | (stays & outlives))] = STATE

    kind[phase == phases.BUILD] = np.where(stays, PARAMETERS, TEMPORARIES)[phase == phases.BUILD]
    _of_forward(kind, passes, found, phase)
    _from_before(kind, passes, facts, found)
    own = np.isin(phase, (phases.FORWARD, phases.OUTSIDE))
    kind[own & (kind == UNKNOWN) & facts.caches[found.stack]] = CACHES
    asked = np.flatnonzero(np.isin(found.requested, _CUBLAS) & stays & (phase != phases.BUILD))
    kind[asked[:_WORKSPACES]] = WORKSPACES
    kind[facts.workspace[found.stack]] = WORKSPACES


def _of_forward(kind: Any, passes: _Passes, found: Allocations, phase: Any) -> None:
    """Set what a forward pass, or the program outside of modules, allocated: by the backward passes it lived into."""
    called = phase == phases.FORWARD
    mine = called | (phase == phases.OUTSIDE)
    first = passes.begun_after(found.begin)
    lives_into = found.end > passes.start(first)
    second = found.end > passes.start(first + 1)
    in_backward = passes.in_backward(found.end)
    stays = (found.end == passes.count) | passes.failed_in(found.begin, found.end)
    kind[mine & ~lives_into & ~stays] = TEMPORARIES
    kind[mine & lives_into & ~second & (called | in_backward)] = ACTIVATIONS
    kind[mine & lives_into & ~second & ~called & ~in_backward] = INPUTS
    # The pass that would free it has not begun: it is what the same line made in steps before, else what a module made.
    unfinished = mine & stays & ~lives_into
    kind[unfinished & called & ((len(passes.failures) > 0) | (len(passes.backward[0]) > 0))] = ACTIVATIONS
    before = dict(zip(found.stack[mine & lives_into].tolist(), kind[mine & lives_into].tolist(), strict=True))
    for index in unfinished.nonzero()[0].tolist():
        kind[index] = before.get(int(found.stack[index]), kind[index])


def _from_before(kind: Any, passes: _Passes, facts: StackFacts, found: Allocations) -> None:
    """Set what the trace only frees: by who freed it."""
    before = (found.begin == BEFORE) & (found.end < passes.count) & (found.stack == 0)
    kind[before & passes.in_backward(found.end)] = ACTIVATIONS
    kind[before & facts.zeroes[found.freed_by]] = GRADIENTS
