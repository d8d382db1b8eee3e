"""Recomputed work: operators of the forward pass that run once more in the backward pass (activation checkpointing).

On a GPU the backward pass runs in a thread of autograd's own, whose lines nobody marks. What is recomputed there has
the lines of the forward pass: it calls the same operators in the same order. A call is recomputed where it runs inside
an autograd node and autograd records it, as PyTorch shows by a sequence number.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.numbers import unique
from perfkit.readers.kineto.attribution.places import BY_RANGE, EventPlaces
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.lines.calls import matched


def originals(host: HostEvents, places: EventPlaces, calls: Booleans, lane: int) -> Integers:
    """For each event the call of the forward pass, on the thread of the steps, that it computes once more; −1 for none.

    The calls of one autograd node are found as a whole in those of the step. What differs, as where a selective
    checkpoint keeps results, is matched module by module.
    """
    found = np.full(len(host), -1, np.int64)
    again = np.flatnonzero(calls & (places.node >= 0) & (host.sequence >= 0) & (host.lane != lane))
    if not len(again):
        return found
    again = again[np.lexsort((host.start[again], places.node[again]))]
    first = np.flatnonzero(calls & (places.node < 0) & (host.lane == lane))
    for step in unique(places.step[again]).tolist():
        before = first[places.step[first] == step]
        mine = again[places.step[again] == step]
        for run in np.split(mine, np.flatnonzero(np.diff(places.node[mine])) + 1):
            found[run] = _as_a_whole(host, places, run, before)
        left = mine[found[mine] < 0]
        found[left] = _by_module(host, places, left, before)
    return found


def _as_a_whole(host: HostEvents, places: EventPlaces, run: Integers, before: Integers) -> Integers:
    """The calls `before` that are those of a `run`, one after the other, in the same modules; −1 where there are none.
    Of several places the last: what is alike there has the same lines."""
    names = host.name[run]
    module = np.where(places.evidence[run] == BY_RANGE, places.module[run], -1)
    count = len(run)
    starts = np.arange(len(before) - count + 1)
    for i in range(count):
        there = before[starts + i]
        alike = host.name[there] == names[i]
        if module[i] >= 0:
            alike &= places.module[there] == module[i]
        starts = starts[alike]
        if not len(starts):
            return np.full(count, -1, np.int64)
    found: Integers = before[starts[-1] + np.arange(count)]
    return found


def _by_module(host: HostEvents, places: EventPlaces, left: Integers, before: Integers) -> Integers:
    """The calls `before` that match what is `left`, in order, of one module each."""
    found = np.full(len(left), -1, np.int64)
    own = np.where(places.evidence[left] == BY_RANGE, places.module[left], -1)
    order: dict[int, list[int]] = defaultdict(list)
    for place, module in enumerate(own.tolist()):
        if module >= 0:
            order[module].append(place)
    for module, at in order.items():
        there = before[places.module[before] == module]
        names = [[host.names[code] for code in host.name[events].tolist()] for events in (left[at], there)]
        partner = matched(*names)
        found[at] = np.where(partner >= 0, there[np.maximum(partner, 0)] if len(there) else -1, -1)
    return found
