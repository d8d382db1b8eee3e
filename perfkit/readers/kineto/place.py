"""Where each host event belongs: step, pass, module, logical operator, and by what evidence.

- Step and pass come from perfkit's ranges around the event, else from `ProfilerStep#N` and the optimizer's annotation.
- Pass without perfkit's ranges: inside an autograd node backward, in the optimizer's annotation optimizer, numbered
  operators forward; and what lies in a range that is called forward, backward or optimizer.
- Module of forward work: the innermost `perfkit:module:` range, else the innermost `nn.Module` that the profiler's
  Python stack or the operator's module hierarchy names (`kineto_modules`). Work of the forward pass outside all of
  them is done by the model itself, `ROOT`.
- Module of backward work: autograd numbers its nodes. The node that runs around the event carries the sequence number
  of the forward operator that made it; among forward operators with that number the last one made the node (the others
  are composites around it, or made none). Its module is the module. Gradient accumulation into a parameter has no
  number; the engine runs it right after the node that produced the gradient, so it shares that node's place.
  Nodes for which the numbers tell nothing follow the profiler's arrow to their forward operator, where there is one.
- A module range inside the backward pass is recomputation (checkpointing): it keeps its module, in pass backward.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perfkit.readers.kineto import modules as kineto_modules
from perfkit.readers.kineto.events import ANNOTATION, OPERATOR, Booleans, HostEvents, Integers, climb
from perfkit.readers.kineto.modules import ROOT
from perfkit.readers.own_ranges import PASS, STEP

__all__ = ["OPTIMIZER", "ROOT", "Place", "Steps", "find_steps", "place"]

OPTIMIZER = "optimizer"
# What people call the ranges of their own training loops, bare or as `## forward ##`.
_PASS_WORDS = {
    "forward": 0, "fwd": 0, "forward_pass": 0, "model_forward": 0,
    "backward": 1, "bwd": 1, "backward_pass": 1,
    "optimizer": 2, "optimizer_step": 2, "optim": 2, "opt": 2, "zero_grad": 2,
}  # fmt: skip
EVALUATE = "autograd::engine::evaluate_function: "
_NODE_NAME = re.compile(r"(Backward\d*|AccumulateGrad|CopySlices|GraphRoot)$")
EVIDENCE = ("none", "range", "autograd")
NONE, BY_RANGE, BY_AUTOGRAD = range(3)


@dataclass
class Steps:
    """The steps of a capture in order: bounds in ns, and the thread that ran them. `marked`: a range told each one."""

    start: Integers
    end: Integers
    lane: int
    marked: bool

    def at(self, moments: Integers) -> Integers:
        """Index of the step that each moment lies in, or −1."""
        if not len(self.start):
            return np.full(len(moments), -1, np.int64)
        index = np.searchsorted(self.start, moments, side="right") - 1
        inside = (index >= 0) & (moments < self.end[np.maximum(index, 0)])
        return np.where(inside, index, -1)


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


def find_steps(events: HostEvents) -> Steps:
    """The step ranges; without any, the whole extent of the busiest thread counts as one step."""
    for prefix in (STEP, "ProfilerStep#"):
        found = np.flatnonzero(events.named([n.startswith(prefix) for n in events.names]))
        if len(found):
            lane = int(np.bincount(events.lane[found]).argmax())
            found = found[events.lane[found] == lane]
            return Steps(events.start[found], events.end[found], lane, True)
    work = np.flatnonzero(events.category == OPERATOR)
    if not len(work):
        return Steps(np.empty(0, np.int64), np.empty(0, np.int64), 0, False)
    lane = int(np.bincount(events.lane[work]).argmax())
    work = work[events.lane[work] == lane]
    return Steps(events.start[work].min(keepdims=True), events.end[work].max(keepdims=True), lane, False)


def place(events: HostEvents, steps: Steps) -> Place:
    """Work out the place of every host event."""
    node, wrapper = _nodes(events)
    operator = _logical_operators(events, wrapper)
    forward = _forward_of(events, node, wrapper)
    pass_names, pass_ = _passes(events, steps, node)
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
    """Step of each event; −1 for what starts outside all, or is longer than the step on the step's own thread."""
    step = steps.at(events.start)
    if not len(steps.end):
        return step
    around = (events.lane == steps.lane) & (events.end > steps.end[np.maximum(step, 0)])
    return np.where(around, -1, step)


def _nodes(events: HostEvents) -> tuple[Integers, Booleans]:
    """The innermost autograd node around each event (an event index or −1), and which events are autograd's own.

    The engine's event is the node; where it is missing (an old trace) the node's own event stands for it.
    """
    evaluated = {n.removeprefix(EVALUATE) for n in events.names if n.startswith(EVALUATE)}
    engine = events.named([n.startswith(EVALUATE) for n in events.names])
    named = events.named([n in evaluated or bool(_NODE_NAME.search(n)) for n in events.names])
    named &= (events.category == OPERATOR) & ~engine
    inside_engine = (events.parent >= 0) & engine[np.maximum(events.parent, 0)] if len(events) else engine
    return events.nearest(engine | (named & ~inside_engine)), engine | named


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


def _forward_of(events: HostEvents, node: Integers, wrapper: Booleans) -> Integers:
    """For each event inside an autograd node the forward operator that made the node, else −1."""
    nodes = np.flatnonzero(node == np.arange(len(events)))
    forward = np.full(len(events), -1, np.int32)
    if not len(nodes):
        return forward
    sequence = events.sequence
    numbered = nodes[sequence[nodes] >= 0]
    forward[numbered] = _made_by(events, numbered, sequence, wrapper)
    made, by_arrow = _arrows(events, node)
    forward[made] = np.where(forward[made] >= 0, forward[made], by_arrow)
    for lane in np.unique(events.lane[nodes]):  # accumulation: the node that ran before it on this thread
        mine = nodes[events.lane[nodes] == lane]
        known = (sequence[mine] >= 0) | (forward[mine] >= 0)
        before = np.maximum.accumulate(np.where(known, np.arange(len(mine)), -1))
        forward[mine] = np.where(before >= 0, forward[mine[np.maximum(before, 0)]], -1)
    return np.where(node >= 0, forward[np.maximum(node, 0)], -1)


def _arrows(events: HostEvents, node: Integers) -> tuple[Integers, Integers]:
    """Autograd nodes and the forward operators that the profiler's own arrows give them."""
    flows = events.flows
    backward = _starting_at(events, flows.backward_lane, flows.backward)
    forward = _starting_at(events, flows.forward_lane, flows.forward)
    known = (backward >= 0) & (forward >= 0)
    of_node = node[backward[known]] if known.any() else backward[known]
    inside = of_node >= 0
    return of_node[inside], forward[known][inside]


def _starting_at(events: HostEvents, lane: Integers, start: Integers) -> Integers:
    """The innermost event of a thread that starts at a moment, or −1."""
    found = np.full(len(start), -1, np.int64)
    for value in np.unique(lane).tolist():
        low, high = np.searchsorted(events.lane, [value, value + 1])
        mine = np.flatnonzero(lane == value)
        at = low + np.searchsorted(events.start[low:high], start[mine], side="right") - 1
        hit = (
            (at >= low) & (events.start[np.maximum(at, 0)] == start[mine]) if high > low else np.zeros(len(mine), bool)
        )
        found[mine[hit]] = at[hit]
    return found


def _made_by(events: HostEvents, nodes: Integers, sequence: Integers, wrapper: Booleans) -> Integers:
    """The forward operator of each node in `nodes`: the last before it with the same sequence number and thread."""
    made = np.flatnonzero((sequence >= 0) & (events.category == OPERATOR) & ~wrapper)
    result = np.full(len(nodes), -1, np.int64)
    threads = events.forward_thread[nodes]
    for thread in np.unique(threads):
        mine = np.flatnonzero(threads == thread)
        found = _last_with(_on_lane(events, made, sequence, sequence[nodes[mine]]), sequence, sequence[nodes[mine]])
        before = (found >= 0) & (events.start[np.maximum(found, 0)] < events.start[nodes[mine]])
        result[mine] = np.where(before, found, -1)
    return result


def _on_lane(events: HostEvents, made: Integers, sequence: Integers, wanted: Integers) -> Integers:
    """Those of `made` on the thread that holds most of the `wanted` sequence numbers.

    The trace names forward threads by a number of autograd's own, so that the thread must be found by its numbers.
    """
    lanes = np.unique(events.lane[made])
    if len(lanes) < 2:
        return made
    hits = [int(np.isin(wanted, sequence[made[events.lane[made] == lane]]).sum()) for lane in lanes]
    return made[events.lane[made] == lanes[int(np.argmax(hits))]]


def _last_with(candidates: Integers, sequence: Integers, wanted: Integers) -> Integers:
    """For each wanted number the last of `candidates` (in order) that carries it, or −1."""
    if not len(candidates):
        return np.full(len(wanted), -1, np.int64)
    order = candidates[np.argsort(sequence[candidates], kind="stable")]
    numbers = sequence[order]
    index = np.searchsorted(numbers, wanted, side="right") - 1
    hit = (index >= 0) & (numbers[np.maximum(index, 0)] == wanted)
    return np.where(hit, order[np.maximum(index, 0)], -1)


def _codes(events: HostEvents, prefix: str) -> tuple[list[str], Integers]:
    """The words behind `prefix` in ranges, and for each event the code of the innermost such range around it or −1."""
    words = sorted({n.removeprefix(prefix) for n in events.names if n.startswith(prefix)})
    code = {prefix + word: i for i, word in enumerate(words)}
    own = np.array([code.get(n, -1) for n in events.names], dtype=np.int64)
    return words, events.inherit(own[events.name]) if len(events) else np.empty(0, np.int64)


def _passes(events: HostEvents, steps: Steps, node: Integers) -> tuple[list[str], Integers]:
    """Pass of each event: from its own ranges, else (another thread) from what the step's thread was in at the time."""
    names, code = _codes(events, PASS)
    ranges = np.flatnonzero(events.named([n.startswith(PASS) for n in events.names]) & (events.lane == steps.lane))
    if len(ranges):
        spans = Steps(events.start[ranges], events.end[ranges], steps.lane, True)
        at = spans.at(events.start)
        code = np.where((code < 0) & (at >= 0), code[ranges[np.maximum(at, 0)]], code)
        return names, code
    return _passes_without_ranges(events, node)


def _passes_without_ranges(events: HostEvents, node: Integers) -> tuple[list[str], Integers]:
    """Pass by autograd's own marks and the optimizer's annotation; else by the name of a range around the event."""
    names = ["forward", "backward", "optimizer"]
    own = np.where(events.sequence >= 0, np.int32(0), np.int32(-1))
    own[events.named([n.startswith("Optimizer.") for n in events.names])] = 2
    code = events.inherit(own)
    words = np.array([_PASS_WORDS.get(n.strip("# ").lower(), -1) for n in events.names], dtype=np.int64)
    said = np.where(events.category == ANNOTATION, words[events.name], -1) if len(events) else code
    code = np.where(code < 0, events.inherit(said), code)
    return names, np.where(node >= 0, 1, code)


def _modules(
    events: HostEvents, node: Integers, forward: Integers, pass_names: list[str], pass_: Integers
) -> tuple[list[str], Integers, Integers]:
    """Module of each event and the evidence for it."""
    found = kineto_modules.find(events)
    names, code = [*found.names, ROOT, OPTIMIZER], found.code
    in_forward = np.isin(pass_, _indices(pass_names, ("forward",)))
    evidence = np.where((code >= 0) & (found.innermost > node), BY_RANGE, NONE)
    if found.names:
        at_root = (evidence == NONE) & in_forward & (node < 0)
        code[at_root], evidence[at_root] = len(names) - 2, BY_RANGE
    origin = np.maximum(forward, 0)
    linked = (evidence == NONE) & (forward >= 0) & (code[origin] >= 0)
    code = np.where(linked, code[origin], np.where(evidence == NONE, -1, code))
    evidence = np.where(linked, BY_AUTOGRAD, evidence)
    optimizing = np.isin(pass_, _indices(pass_names, (OPTIMIZER, "zero_grad")))
    return names, np.where(optimizing, len(names) - 1, code), np.where(optimizing, BY_RANGE, evidence)


def _indices(names: list[str], wanted: tuple[str, ...]) -> list[int]:
    return [i for i, name in enumerate(names) if name in wanted]
