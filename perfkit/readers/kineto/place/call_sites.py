"""Kernels of compiled code, placed by the call sites that the compiler told of (`perfkit.tree.shares.CallSite`).

A trace shows the calls of a graph in the order of its code, so a run of the graph is found by the names of its calls
one after the other. Where one is missing or another stands between, the calls that are certain all the same are placed
(`perfkit.tree.sequences`). A graph that runs several times in one pass serves several modules with the same code,
and nothing tells which: its calls are not placed.

What runs beside the graphs is the model's own work, as it is in eager; what runs in one and is no call that it told of
is not placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.readers.columns import Booleans, Coded, Integers
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, HostEvents
from perfkit.readers.kineto.place.places import OPTIMIZER, Place
from perfkit.readers.own_ranges import PASS, ROOT
from perfkit.tree import shares
from perfkit.tree.sequences import MOST_CELLS, align
from perfkit.tree.shares import CallSite

PROVENANCE = "provenance"
_GRAPH_RUNS = "## Call CompiledFxGraph"  # the range that Inductor opens around the code of a graph


def on_call_sites(
    host: HostEvents,
    places: Place,
    chosen: Integers,
    columns: dict[str, Any],
    graphs: Sequence[Sequence[CallSite]],
    warnings: list[str],
) -> dict[str, Any]:
    """The place columns of the rows of `graphs`' calls; `columns` holds those of all `chosen` host events (−1: none).

    Returns the columns that change; nothing without graphs. Adds to `warnings` what could not be placed.
    """
    sites = [site for graph in graphs for site in graph]
    if not sites or not len(host):
        return {}
    called = _called(host, graphs)
    of_event = locate(host, graphs, called, warnings)
    site = np.where(chosen >= 0, of_event[np.maximum(chosen, 0)], -1)
    mains = [shares.main(s.members) if s.members else None for s in sites]
    told = np.array([m is not None for m in mains] + [False])[site]
    changed: dict[str, Sequence[str | None]] = {
        "module": [m.module if m else None for m in mains],
        "operator": [m.operator if m else None for m in mains],
        "placed_by": [PROVENANCE] * len(sites),
        "serves": [shares.text(s.members) for s in sites],
    }
    before = dict(columns) | {"serves": Coded([], np.full(len(chosen), -1))}
    result = {name: _over(Coded.of(before[name]), words, np.where(told, site, -1)) for name, words in changed.items()}
    result["range"] = _with_lines(Coded.of(columns["range"]), [s.line for s in sites], np.where(told, site, -1))
    outside = (chosen >= 0) & ~_in_graphs(host, called)[np.maximum(chosen, 0)]
    return result | _beside(places, np.where(outside, chosen, -1), result, Coded.of(columns["pass"]))


def _called(host: HostEvents, graphs: Sequence[Sequence[CallSite]]) -> Booleans:
    """Which events may be calls: operators with the name of one, inside no other."""
    names = {s.name for g in graphs for s in g}
    return _outermost(host, host.named([n in names for n in host.names]) & (host.category == OPERATOR))


def _runs_of_graphs(host: HostEvents) -> Booleans:
    return host.named([n.startswith(_GRAPH_RUNS) for n in host.names]) & (host.category == ANNOTATION)


def _in_graphs(host: HostEvents, called: Booleans) -> Booleans:
    """Whether each event ran in the code of a graph; where runs are not marked, in what may be a call."""
    marked = _runs_of_graphs(host)
    inside: Booleans = host.nearest(marked if marked.any() else called) >= 0
    return inside


def locate(host: HostEvents, graphs: Sequence[Sequence[CallSite]], called: Booleans, warnings: list[str]) -> Integers:
    """For each host event the call site that it ran in, an index into all sites of `graphs` in order, or −1.

    `called` are the events that may be calls.
    """
    words: dict[str, int] = {}
    code = np.array([words.setdefault(n, len(words)) for n in host.names], dtype=np.int64)
    starts = np.cumsum([0, *(len(g) for g in graphs)])
    sequences = [np.array([words.get(s.name, -1) for s in g], dtype=np.int64) for g in graphs]
    own = np.full(len(host), -1, np.int64)
    runs: list[tuple[int, int]] = []  # graph and its first call
    for segment, whole in _segments(host, called):
        runs += _placed_runs(segment, code[host.name[segment]], sequences, starts, own, whole)
    _drop_shared(host, graphs, starts, runs, own, warnings)
    return host.inherit(own)


def _outermost(host: HostEvents, called: Booleans) -> Booleans:
    """Those of the `called` events that run inside no other."""
    nearest = host.nearest(called)
    inside = (host.parent >= 0) & (nearest[np.maximum(host.parent, 0)] >= 0)
    return called & ~inside


def _segments(host: HostEvents, called: Booleans) -> list[tuple[Integers, bool]]:
    """The called events in the order of time: those of one run of a graph each where it is marked (True), else those of
    a thread."""
    marked = _runs_of_graphs(host)
    by = host.nearest(marked) if marked.any() else -1 - host.lane
    events = np.flatnonzero(called & (by >= 0)) if marked.any() else np.flatnonzero(called)
    return [(events[by[events] == key], bool(marked.any())) for key in np.unique(by[events]).tolist()]


def _placed_runs(
    events: Integers, names: Integers, sequences: Sequence[Integers], starts: Integers, own: Integers, whole: bool
) -> list[tuple[int, int]]:
    """Give the events of a segment their call sites; returns the graphs that ran in it, each with its first event.

    A `whole` segment is one run of one graph: it fits as a whole, or is aligned.
    """
    found, at = [], 0
    longest_first = sorted(range(len(sequences)), key=lambda g: -len(sequences[g]))
    while at < len(events):
        graph = next((g for g in longest_first if _begins(names, at, sequences[g])), None)
        if graph is None or (whole and len(sequences[graph]) != len(events)):
            at += 1
            continue
        length = len(sequences[graph])
        own[events[at : at + length]] = starts[graph] + np.arange(length)
        found.append((graph, int(events[at])))
        at += length
    if not found and whole and len(events):
        return _aligned(events, names, sequences, starts, own)
    return found


def _begins(names: Integers, at: int, sequence: Integers) -> bool:
    return len(sequence) > 0 and np.array_equal(names[at : at + len(sequence)], sequence)


def _aligned(
    events: Integers, names: Integers, sequences: Sequence[Integers], starts: Integers, own: Integers
) -> list[tuple[int, int]]:
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
    return [(graph, int(events[0]))]


def _drop_shared(
    host: HostEvents,
    graphs: Sequence[Sequence[CallSite]],
    starts: Integers,
    runs: Sequence[tuple[int, int]],
    own: Integers,
    warnings: list[str],
) -> None:
    """Take the sites of graphs that run several times in one pass away again."""
    around = host.nearest(host.named([n.startswith(PASS) for n in host.names]))
    for graph in range(len(graphs)):
        passes = [int(around[event]) for g, event in runs if g == graph and around[event] >= 0]
        times = max((passes.count(p) for p in set(passes)), default=0)
        if times > 1:
            own[(own >= starts[graph]) & (own < starts[graph + 1])] = -1
            warnings.append(
                f"a compiled graph of {len(graphs[graph])} calls runs {times} × in one pass, for as many modules: "
                "its kernels are not placed"
            )


def _over(before: Coded, words: Sequence[str | None], code: Integers) -> Coded:
    """`before`, with `words[code]` in the rows where `code` is not −1."""
    known = {word: i for i, word in enumerate(before.words)}
    there = np.array([-1 if w is None else known.setdefault(w, len(known)) for w in words] + [-1], dtype=np.int64)
    return Coded(list(known), np.where(code >= 0, there[code], before.code))


def _with_lines(paths: Coded, lines: Sequence[int], site: Integers) -> Coded:
    """Paths of ranges, that of a call with its line in the generated text behind them: `…/generated:12`."""
    words: list[str | None] = []
    pairs, code = np.unique(np.stack([paths.code, site]), axis=1, return_inverse=True)
    for path, at in pairs.T.tolist():
        line = f"generated:{lines[at]}" if at >= 0 and lines[at] else ""
        words.append("/".join(filter(None, (paths.words[path] if path >= 0 else "", line))) or None)
    distinct = Coded.of(words)
    return Coded(distinct.words, distinct.code[code.reshape(-1)])


def _beside(places: Place, chosen: Integers, columns: dict[str, Coded], passes: Coded) -> dict[str, Coded]:
    """Module and evidence of the `chosen` rows (−1: another) that are forward, or backward in a node of autograd."""
    in_node = places.node[np.maximum(chosen, 0)] >= 0
    words = np.array([*passes.words, ""], dtype=object)[passes.code]
    module, by = columns["module"], columns["placed_by"]
    evidence = np.array([*by.words, ""], dtype=object)[by.code]
    nothing = (chosen >= 0) & (module.code < 0) & (words != OPTIMIZER) & (evidence != PROVENANCE)
    forward, backward = nothing & (words == "forward") & ~in_node, nothing & (words == "backward") & in_node
    return {
        "module": _over(module, [ROOT], np.where(forward | backward, 0, -1)),
        "placed_by": _over(by, ["range", "autograd"], np.select([forward, backward], [0, 1], -1)),
    }
