"""Which module of the model each host event belongs to, by the first of three sources that the trace has.

1. `perfkit:module:` ranges, with the module's path in the model.
2. The profiler's Python stack (`with_stack`, `with_modules`): functions called `nn.Module: Block_0`. The path is that
   of the nested modules by class and number, such as `Block_0.Linear_1`; the model, which holds all, is left out.
3. The "Module Hierarchy" of an operator, as TorchScript models write it: `TOP(Net)::forward.h(Block)::forward.SELF(…)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.numbers import unique
from perfkit.profile_names import MODULE, ROOT
from perfkit.readers.kineto.decode.events import OPERATOR, PYTHON, HostEvents

_STACK = "nn.Module: "
_LEVEL = re.compile(r"(?:^|\.)([^.()]+)\([^()]*\)::[^.()]*")


@dataclass(frozen=True)
class EventModules:
    """`names` of modules; for each event the `code` of its module and the `innermost` event that says so, else −1."""

    names: list[str]
    code: Integers
    innermost: Integers


def find_modules(events: HostEvents) -> EventModules:
    """The modules of all events by the best source there is."""
    if any(n.startswith(MODULE) for n in events.names):
        return _by_ranges(events)
    if any(n.startswith(_STACK) for n in events.names):
        return _by_stack(events)
    return _by_hierarchy(events)


def _by_ranges(events: HostEvents) -> EventModules:
    words = sorted({n.removeprefix(MODULE) for n in events.names if n.startswith(MODULE)})
    code = {MODULE + word: i for i, word in enumerate(words)}
    return _inherited(events, words, np.array([code.get(n, -1) for n in events.names], dtype=np.int32)[events.name])


def _by_stack(events: HostEvents) -> EventModules:
    """Paths from the nesting of the modules' calls."""
    here = events.named([n.startswith(_STACK) for n in events.names]) & (events.category == PYTHON)
    nearest = events.nearest(here)
    calls = np.flatnonzero(here)
    around = np.where(events.parent[calls] >= 0, nearest[events.parent[calls]], -1)
    label = [events.names[n].removeprefix(_STACK) for n in events.name[calls].tolist()]
    holders = set(around.tolist())
    roots = {w for w, i, a in zip(label, calls.tolist(), around.tolist(), strict=True) if a < 0 and i in holders}
    model = next(iter(roots)) if len(roots) == 1 else None
    path: dict[int, str] = {-1: ""}
    for i, outer, word in zip(calls.tolist(), around.tolist(), label, strict=True):
        own = "" if outer < 0 and word == model else word
        path[i] = ".".join(filter(None, (path[outer], own)))
    codes = {text: n for n, text in enumerate(dict.fromkeys(p or ROOT for i, p in path.items() if i >= 0))}
    own_code = np.full(len(events), -1, np.int32)
    own_code[calls] = [codes[path[i] or ROOT] for i in calls.tolist()]
    return _inherited(events, list(codes), own_code)


def _by_hierarchy(events: HostEvents) -> EventModules:
    """Paths from the texts at the operators; without any no event has a module."""
    paths = [hierarchy_path(text) for text in events.hierarchies]
    codes = {text: n for n, text in enumerate(dict.fromkeys(p or ROOT for p in paths))}
    of_text = np.array([codes[p or ROOT] for p in paths] + [-1], dtype=np.int32)
    return _inherited(events, list(codes), of_text[events.hierarchy])


def hierarchy_path(text: str) -> str:
    """The module path in a "Module Hierarchy": `TOP(Net)::forward.h(Block)::forward.fc(Linear)::forward` → `h.fc`."""
    return ".".join(word for word in _LEVEL.findall(text) if word not in ("TOP", "SELF", "UNKNOWN_INSTANCE"))


def _inherited(events: HostEvents, names: list[str], own: Integers) -> EventModules:
    innermost = events.nearest(own >= 0) if len(events) else own
    code = np.where(innermost >= 0, own[np.maximum(innermost, 0)], -1) if len(events) else own
    return EventModules(names, code.astype(np.int32), innermost)


EVALUATE = "autograd::engine::evaluate_function: "
_NODE_NAME = re.compile(r"(Backward\d*|AccumulateGrad|CopySlices|GraphRoot)$")


def nodes_around(events: HostEvents) -> tuple[Integers, Booleans]:
    """The innermost autograd node around each event (an event index or −1), and which events are autograd's own.

    The engine's event is the node; where it is missing (an old trace) the node's own event is taken.
    """
    evaluated = {n.removeprefix(EVALUATE) for n in events.names if n.startswith(EVALUATE)}
    engine = events.named([n.startswith(EVALUATE) for n in events.names])
    named = events.named([n in evaluated or bool(_NODE_NAME.search(n)) for n in events.names])
    named &= (events.category == OPERATOR) & ~engine
    inside_engine = (events.parent >= 0) & engine[np.maximum(events.parent, 0)] if len(events) else engine
    return events.nearest(engine | (named & ~inside_engine)), engine | named


def forward_of(events: HostEvents, node: Integers, wrapper: Booleans) -> Integers:
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
    for lane in unique(events.lane[nodes]):  # accumulation: the node that ran before it on this thread
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
    for value in unique(lane).tolist():
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
    for thread in unique(threads):
        mine = np.flatnonzero(threads == thread)
        found = _last_with(_on_lane(events, made, sequence, sequence[nodes[mine]]), sequence, sequence[nodes[mine]])
        before = (found >= 0) & (events.start[np.maximum(found, 0)] < events.start[nodes[mine]])
        result[mine] = np.where(before, found, -1)
    return result


def _on_lane(events: HostEvents, made: Integers, sequence: Integers, wanted: Integers) -> Integers:
    """Return those of `made` on the thread that holds most of the `wanted` sequence numbers.

    The trace names forward threads by a number of autograd's own, so that the thread must be found by its numbers.
    """
    lanes = unique(events.lane[made])
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
