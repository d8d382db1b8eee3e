"""Autograd's nodes around events, and the forward operators that made them.

Autograd numbers its nodes. The node that runs around an event carries the sequence number of the forward operator that
made it; among forward operators with that number the last one made the node (the others are composites around it, or
made none). Gradient accumulation into a parameter has no number; the engine runs it right after the node that produced
the gradient, so it shares that node's forward operator. Nodes for which the numbers tell nothing follow the profiler's
arrow to their forward operator, where there is one.
"""

from __future__ import annotations

import re

import numpy as np

from perfkit.readers.columns import Booleans, Integers
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents

EVALUATE = "autograd::engine::evaluate_function: "
_NODE_NAME = re.compile(r"(Backward\d*|AccumulateGrad|CopySlices|GraphRoot)$")


def nodes_around(events: HostEvents) -> tuple[Integers, Booleans]:
    """The innermost autograd node around each event (an event index or −1), and which events are autograd's own.

    The engine's event is the node; where it is missing (an old trace) the node's own event stands for it.
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
