"""The place of each host event: step, pass, module, logical operator, and by what evidence.

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

from perfkit.columns import Booleans, Integers
from perfkit.engines import IDLE, PHASES, iteration_of
from perfkit.intervals import Steps
from perfkit.numbers import unique
from perfkit.profile_names import (
    APART,
    APART_PASSES,
    BACKWARD,
    FORWARD,
    FORWARD_PASSES,
    LOADER,
    OPTIMIZER,
    PASS,
    ROOT,
    THUNDER,
    ZERO_GRAD,
    pass_of,
)
from perfkit.readers.kineto.attribution.modules import find_modules, forward_of, nodes_around
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, RUNTIME, HostEvents, climb

EVIDENCE = ("none", "range", "autograd")
NONE, BY_RANGE, BY_AUTOGRAD = range(3)


@dataclass
class EventPlaces:
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


def places_of(events: HostEvents, steps: Steps) -> EventPlaces:
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
    return EventPlaces(step, pass_names, pass_, module_names, module, operator, evidence, node, wrapper)


def _steps_of(events: HostEvents, steps: Steps) -> Integers:
    """Step of each event; −1 for what starts outside all, is longer than the step on the step's own thread, or belongs
    to a thread that answers another request meanwhile."""
    step = steps.at(events.start)
    if not len(steps.end):
        return step
    if APART in events.names:
        answering = unique(events.lane[events.named([name == APART for name in events.names])])
        step = np.where(np.isin(events.lane, answering) & (events.lane != steps.lane), -1, step)
    around = (events.lane == steps.lane) & (events.end > steps.end[np.maximum(step, 0)])
    return np.where(around, -1, step)


def _logical_operators(events: HostEvents, wrapper: Booleans) -> Integers:
    """For each event the outermost real operator around it, below ranges and autograd's events; −1 without any.

    Function objects such as `CompiledFunction` have no namespace and do not count.
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


_PASSES = [FORWARD, BACKWARD, OPTIMIZER]


def passes(events: HostEvents, steps: Steps, node: Integers) -> tuple[list[str], Integers]:
    """Pass of each event: from its own ranges, else (another thread) from what the step's thread was in at the time.

    In an iteration of a serving engine it is the iteration's phase.
    """
    served = [iteration_of(name) for name in steps.names]
    if any(served):
        phase = np.array([PHASES.index(one.phase if one else IDLE) for one in served])
        at = steps.at(events.start)
        return list(PHASES), np.where(at >= 0, phase[np.maximum(at, 0)], -1)
    names, code = _codes(events, PASS)
    ranges = np.flatnonzero(events.named([n.startswith(PASS) for n in events.names]) & (events.lane == steps.lane))
    if len(ranges):
        spans = Steps(events.start[ranges], events.end[ranges], steps.lane, True)
        at = spans.at(events.start)
        code = np.where((code < 0) & (at >= 0), code[ranges[np.maximum(at, 0)]], code)
        return names, code
    return _passes_without_ranges(events, steps, node)


def _passes_without_ranges(events: HostEvents, steps: Steps, node: Integers) -> tuple[list[str], Integers]:
    """Pass by autograd's own marks and the optimizer's annotation; else by the name of a range around the event."""
    own = np.where(events.sequence >= 0, np.int32(0), np.int32(-1))
    own[events.named([n.startswith("Optimizer.") for n in events.names])] = 2
    code = events.inherit(own)
    known: list[str | None] = [*_PASSES]
    words = np.array([known.index(word) if (word := pass_of(n)) in known else -1 for n in events.names], dtype=np.int64)
    said = np.where(events.category == ANNOTATION, words[events.name], -1) if len(events) else code
    code = np.where(code < 0, events.inherit(said), code)
    code = np.where(node >= 0, 1, code)
    for call in np.flatnonzero(events.named([n == THUNDER for n in events.names]) & (events.sequence >= 0)).tolist():
        code[_before(events, steps, code, call)] = 0
    return _PASSES, code


def _before(events: HostEvents, steps: Steps, code: Integers, call: int) -> Integers:
    """The events without a pass on the thread of `call` that ran before it, in its step, since any with a pass or a
    batch was fetched."""
    mine = np.arange(np.searchsorted(events.lane, events.lane[call]), call)
    loading = events.named([n.startswith(LOADER) for n in events.names])[mine]
    since = events.end[mine[(code[mine] >= 0) | loading]].max(initial=-1)
    at = int(steps.at(events.start[call : call + 1])[0])
    if at >= 0:
        since = max(int(since), int(steps.start[at]))
    chosen = (events.start[mine] >= since) & (code[mine] < 0) & np.isin(events.category[mine], (OPERATOR, RUNTIME))
    return mine[chosen]


def _codes(events: HostEvents, prefix: str) -> tuple[list[str], Integers]:
    """Return the words after `prefix` in ranges, and for each event the code of the innermost such range around it or
    −1."""
    words = sorted({n.removeprefix(prefix) for n in events.names if n.startswith(prefix)})
    code = {prefix + word: i for i, word in enumerate(words)}
    own = np.array([code.get(n, -1) for n in events.names], dtype=np.int64)
    return words, events.inherit(own[events.name]) if len(events) else np.empty(0, np.int64)
