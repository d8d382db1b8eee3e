"""Where each host event belongs: step, pass, module, logical operator, and by what evidence.

- Step and pass come from perfkit's ranges around the event, else from other marks (`steps`, `passes`).
- Module of forward work: the innermost `perfkit:module:` range, else the innermost `nn.Module` that the profiler's
  Python stack or the operator's module hierarchy names (`modules`). Work of the forward pass outside all of them is
  done by the model itself, `ROOT`.
- Module of backward work: that of the forward operator that made the autograd node around the event (`autograd`).
- A module range inside the backward pass is recomputation (checkpointing): it keeps its module, in pass backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.profile_names import APART, APART_PASSES, FORWARD_PASSES, OPTIMIZER, ROOT, ZERO_GRAD
from perfkit.readers.columns import Booleans, Integers
from perfkit.readers.intervals import Steps
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, HostEvents, climb
from perfkit.readers.kineto.place.autograd import forward_of, nodes_around
from perfkit.readers.kineto.place.modules import find_modules
from perfkit.readers.kineto.place.passes import passes

EVIDENCE = ("none", "range", "autograd")
NONE, BY_RANGE, BY_AUTOGRAD = range(3)


@dataclass
class Place:
    """For each host event: codes into `pass_names` and `module_names` (−1: unknown), step, and evidence.

    `operator` is the index of the event that is the logical operator, or −1; `node` the innermost autograd node around
    the event, or −1; `wrapper` marks autograd's own events.
    """

    step: Integers
    pass_names: list[str]
    pass_: Integers
    module_names: list[str]
    module: Integers
    operator: Integers
    evidence: Integers
    node: Integers
    wrapper: Booleans


def places_of(events: HostEvents, steps: Steps) -> Place:
    """Work out the place of every host event."""
    node, wrapper = nodes_around(events)
    operator = _logical_operators(events, wrapper)
    forward = forward_of(events, node, wrapper)
    pass_names, pass_ = passes(events, steps, node)
    module_names, module, evidence = _modules(events, node, forward, pass_names, pass_)
    origin = np.where(forward >= 0, operator[np.maximum(forward, 0)], -1)
    by_autograd = (evidence == BY_AUTOGRAD) | ((node >= 0) & (evidence == NONE))
    operator = np.where(by_autograd & (origin >= 0), origin, operator)
    step, pass_, module, operator, evidence, node = (
        column.astype(np.int32, copy=False)
        for column in (_steps_of(events, steps), pass_, module, operator, evidence, node)
    )
    return Place(step, pass_names, pass_, module_names, module, operator, evidence, node, wrapper)


def _steps_of(events: HostEvents, steps: Steps) -> Integers:
    """Step of each event; −1 for what starts outside all, is longer than the step on the step's own thread, or belongs
    to a request that another thread answers."""
    step = steps.at(events.start)
    if not len(steps.end):
        return step
    if APART in events.names:
        step = np.where(events.nearest(events.named([name == APART for name in events.names])) >= 0, -1, step)
    around = (events.lane == steps.lane) & (events.end > steps.end[np.maximum(step, 0)])
    return np.where(around, -1, step)


def _logical_operators(events: HostEvents, wrapper: Booleans) -> Integers:
    """For each event the outermost real operator around it, below ranges and autograd's events; −1 without any.

    Function objects such as `CompiledFunction` have no namespace and are no operators.
    """
    if not len(events):
        return np.empty(0, np.int32)
    real = events.named(["::" in n for n in events.names]) & (events.category == OPERATOR) & ~wrapper
    barrier = (events.category == ANNOTATION) | wrapper
    stop = events.nearest(real | barrier)  # the innermost of either around an event
    inner = np.where(stop >= 0, stop, 0)
    above = np.where(events.parent >= 0, stop[events.parent], -1)
    outwards = np.where(real & (above >= 0) & ~barrier[np.maximum(above, 0)], above, np.arange(len(events)))
    return np.where((stop >= 0) & real[inner], climb(outwards)[inner], -1).astype(np.int32)


def _modules(
    events: HostEvents, node: Integers, forward: Integers, pass_names: list[str], pass_: Integers
) -> tuple[list[str], Integers, Integers]:
    """Module of each event and the evidence for it."""
    found = find_modules(events)
    names, code = [*found.names, ROOT, OPTIMIZER, *APART_PASSES], found.code
    root, optimizer = (len(found.names) + i for i in range(2))
    in_forward = np.isin(pass_, _indices(pass_names, FORWARD_PASSES))
    evidence = np.where((code >= 0) & (found.innermost > node), BY_RANGE, NONE)
    if found.names:
        at_root = (evidence == NONE) & in_forward & (node < 0)
        code[at_root], evidence[at_root] = root, BY_RANGE
    origin = np.maximum(forward, 0)
    linked = (evidence == NONE) & (forward >= 0) & (code[origin] >= 0)
    code = np.where(linked, code[origin], np.where(evidence == NONE, -1, code))
    evidence = np.where(linked, BY_AUTOGRAD, evidence)
    optimizing = np.isin(pass_, _indices(pass_names, (OPTIMIZER, ZERO_GRAD)))
    code, evidence = np.where(optimizing, optimizer, code), np.where(optimizing, BY_RANGE, evidence)
    for number, name in enumerate(APART_PASSES, optimizer + 1):
        there = (code < 0) & np.isin(pass_, _indices(pass_names, (name,)))
        code[there], evidence[there] = number, BY_RANGE
    return names, code, evidence


def _indices(names: list[str], wanted: tuple[str, ...]) -> list[int]:
    return [i for i, name in enumerate(names) if name in wanted]
