"""Runs of a compiled graph in a trace, found by the names of its calls in the order of its code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.numbers import unique
from perfkit.profile_names import GRAPH_RUNS, PASS
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, HostEvents
from perfkit.tree.sequences import MOST_CELLS, align
from perfkit.tree.shares import CallSite


@dataclass(frozen=True)
class GraphRun:
    """A run of a graph: the events of its calls, in the order of time."""

    graph: int
    events: Integers


def calls_among(host: HostEvents, graphs: Sequence[Sequence[CallSite]]) -> Booleans:
    """Which events may be calls: operators with the name of one, inside no other."""
    names = {s.name for g in graphs for s in g}
    return _outermost(host, host.named([n in names for n in host.names]) & (host.category == OPERATOR))


def _runs_of_graphs(host: HostEvents) -> Booleans:
    return host.named([n.startswith(GRAPH_RUNS) for n in host.names]) & (host.category == ANNOTATION)


def in_graphs(host: HostEvents, called: Booleans) -> Booleans:
    """Return whether each event ran in the code of a graph; where runs are not marked, in what may be a call."""
    marked = _runs_of_graphs(host)
    inside: Booleans = host.nearest(marked if marked.any() else called) >= 0
    return inside


def locate(
    host: HostEvents, graphs: Sequence[Sequence[CallSite]], called: Booleans
) -> tuple[Integers, list[int], list[bool]]:
    """For each host event the call site that it ran in, an index into all sites of `graphs` in order, or −1; for each
    site how often its graph runs in one pass at most; and whether each graph was distinguished from those with the
    same calls.

    `called` are the events that may be calls.
    """
    words: dict[str, int] = {}
    code = np.array([words.setdefault(n, len(words)) for n in host.names], dtype=np.int64)
    starts = np.cumsum([0, *(len(g) for g in graphs)])
    sequences = [np.array([words.get(s.name, -1) for s in g], dtype=np.int64) for g in graphs]
    own = np.full(len(host), -1, np.int64)
    runs: list[GraphRun] = []
    for segment, whole in _segments(host, called):
        runs += _placed_runs(segment, code[host.name[segment]], sequences, starts, own, whole)
    often, distinguished = _shared_out(host, sequences, starts, own, runs)
    return host.inherit(own), [count for graph, count in enumerate(often) for _ in graphs[graph]], distinguished


def _outermost(host: HostEvents, called: Booleans) -> Booleans:
    """Return those of the `called` events that run outside of all others."""
    nearest = host.nearest(called)
    inside = (host.parent >= 0) & (nearest[np.maximum(host.parent, 0)] >= 0)
    return called & ~inside


def _segments(host: HostEvents, called: Booleans) -> list[tuple[Integers, bool]]:
    """The called events in the order of time: those of one run of a graph each where it is marked (True), else those of
    a thread."""
    marked = _runs_of_graphs(host)
    by = host.nearest(marked) if marked.any() else -1 - host.lane
    events = np.flatnonzero(called & (by >= 0)) if marked.any() else np.flatnonzero(called)
    return [(events[by[events] == key], bool(marked.any())) for key in unique(by[events]).tolist()]


def _placed_runs(
    events: Integers, names: Integers, sequences: Sequence[Integers], starts: Integers, own: Integers, whole: bool
) -> list[GraphRun]:
    """Give the events of a segment their call sites; returns the runs of graphs in it.

    A `whole` segment is one run of one graph: it fits as a whole, or is aligned.
    """
    found: list[GraphRun] = []
    at = 0
    longest_first = sorted(range(len(sequences)), key=lambda g: -len(sequences[g]))
    while at < len(events):
        graph = next((g for g in longest_first if _begins(names, at, sequences[g])), None)
        if graph is None or (whole and len(sequences[graph]) != len(events)):
            at += 1
            continue
        length = len(sequences[graph])
        own[events[at : at + length]] = starts[graph] + np.arange(length)
        found.append(GraphRun(graph, events[at : at + length]))
        at += length
    if not found and whole and len(events):
        return _aligned(events, names, sequences, starts, own)
    return found


def _begins(names: Integers, at: int, sequence: Integers) -> bool:
    return len(sequence) > 0 and np.array_equal(names[at : at + len(sequence)], sequence)


def _aligned(
    events: Integers, names: Integers, sequences: Sequence[Integers], starts: Integers, own: Integers
) -> list[GraphRun]:
    """The call sites of a run that no graph fits exactly: of the graph that fits best, those that are certain."""
    best: tuple[int, int, Integers] | None = None
    for graph, sequence in enumerate(sequences):
        if len(events) * len(sequence) > MOST_CELLS:
            continue
        site = align(len(events), len(sequence), lambda i, s=sequence: s == names[i])  # type: ignore[misc]
        count = int((site >= 0).sum())
        if count and (best is None or count > best[0]):
            best = count, graph, site
    if best is None or 2 * best[0] < len(events):
        return []
    _, graph, site = best
    own[events[site >= 0]] = starts[graph] + site[site >= 0]
    return [GraphRun(graph, events[site >= 0])]


def _shared_out(
    host: HostEvents, sequences: Sequence[Integers], starts: Integers, own: Integers, runs: Sequence[GraphRun]
) -> tuple[list[int], list[bool]]:
    """Share the runs of a pass out over the graphs that have the same calls, where there is one for each; how often
    each graph runs in one pass at most, and whether all its runs were shared out."""
    alike: dict[bytes, list[int]] = {}
    for graph, sequence in enumerate(sequences):
        alike.setdefault(sequence.tobytes(), []).append(graph)
    often = [0] * len(sequences)
    distinguished: list[list[bool]] = [[] for _ in sequences]
    by_pass: dict[tuple[bytes, int], list[GraphRun]] = {}
    for run, number in zip(runs, passes_of(host, runs), strict=True):
        if number < 0:
            distinguished[run.graph].append(False)
        if number >= 0:
            by_pass.setdefault((sequences[run.graph].tobytes(), number), []).append(run)
    for (calls, _), found in by_pass.items():
        graphs = alike[calls]
        each = len(found) == len(graphs)
        if each:
            for graph, run in zip(graphs, sorted(found, key=lambda r: host.start[r.events[0]]), strict=True):
                own[run.events] += starts[graph] - starts[run.graph]
        for graph in graphs:
            often[graph] = max(often[graph], 1 if each else len(found))
            distinguished[graph].append(each)
    return often, [bool(shared) and all(shared) for shared in distinguished]


def passes_of(host: HostEvents, runs: Sequence[GraphRun]) -> list[int]:
    """Return the outermost range of a pass around each run, by time: on a GPU PyTorch's backward runs in a thread of
    its own. −1: none."""
    ranges = np.flatnonzero(_outermost(host, host.named([n.startswith(PASS) for n in host.names])))
    ranges = ranges[np.argsort(host.start[ranges], kind="stable")]
    moments = np.array([host.start[run.events[0]] for run in runs], np.int64)
    last = np.searchsorted(host.start[ranges], moments, side="right") - 1
    inside = (last >= 0) & (moments < host.end[ranges[np.maximum(last, 0)]]) if len(ranges) else last >= 0
    return np.where(inside, last, -1).tolist()
