"""The calls that a step makes: operators inside no other one, and CUDA's calls outside of any, in order."""

from __future__ import annotations

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.intervals import Steps
from perfkit.profile_names import GRAPH_RUNS
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, RUNTIME, HostEvents
from perfkit.tree.sequences import MOST_CELLS, align

_OPEN = ("Torch-Compiled Region", "CompiledFunction", "ProfilerStep", "AOTDispatcher", "Pregraph", GRAPH_RUNS)
_FEW_CELLS = MOST_CELLS // 20  # pairs that are compared exactly: well under a second


def calls_of(host: HostEvents, places: EventPlaces) -> Booleans:
    """Which events are calls; autograd's own events, its functions in Python and regions of compiled code are
    transparent."""
    if not len(host):
        return np.zeros(0, bool)
    opens = host.named([name.startswith(_OPEN) for name in host.names])
    operator = (host.category == OPERATOR) & ~places.wrapper & ~opens
    real = (operator & ~_functions(host, operator)) | (host.category == RUNTIME)
    around = host.nearest(real)
    inside = (host.parent >= 0) & (around[np.maximum(host.parent, 0)] >= 0)
    return real & ~inside & (host.category != ANNOTATION)


def _functions(host: HostEvents, operator: Booleans) -> Booleans:
    """Return which of the operators are functions in Python, such as checkpoint's: without a namespace, and with
    operators of the dispatcher inside."""
    named = operator & host.named(["::" in name for name in host.names])
    inner = np.flatnonzero(named)
    functions = np.flatnonzero(operator & ~named)
    found = np.zeros(len(host), bool)
    if len(inner) and len(functions):
        first = np.searchsorted(inner, functions)  # events are in the order of their threads, then of their start
        inside = inner[np.minimum(first, len(inner) - 1)]
        there = (first < len(inner)) & (host.lane[inside] == host.lane[functions])
        found[functions] = there & (host.start[inside] < host.end[functions])
    return found


def sequence(calls: Booleans, host: HostEvents, places: EventPlaces, steps: Steps, step: int) -> Integers:
    """The calls of one step on the thread of the steps, in order."""
    found: Integers = np.flatnonzero(calls & (places.step == step) & (host.lane == steps.lane))
    return found


def matched(first: list[str], second: list[str]) -> Integers:
    """For each name of `first` its place in `second`, −1 where none is certain."""
    if first == second:
        return np.arange(len(first))
    found = np.full(len(first), -1, np.int64)
    head = _alike(first, second)
    tail = _alike(first[head:][::-1], second[head:][::-1])
    found[:head] = np.arange(head)
    if tail:
        found[-tail:] = np.arange(len(second) - tail, len(second))
    rows, columns = first[head : len(first) - tail], second[head : len(second) - tail]
    if not rows or not columns or len(rows) * len(columns) > _FEW_CELLS:
        return found
    codes = {name: i for i, name in enumerate(dict.fromkeys([*rows, *columns]))}
    left, right = (np.array([codes[name] for name in names]) for names in (rows, columns))
    inner = align(len(rows), len(columns), lambda i: right == left[i])
    found[head : len(first) - tail] = np.where(inner >= 0, inner + head, -1)
    return found


def _alike(first: list[str], second: list[str]) -> int:
    """Return how many names two lists begin with alike."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
