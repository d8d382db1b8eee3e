"""Kernels of compiled code, placed by the call sites that the compiler told of (`perfkit.tree.shares.CallSite`).

A trace shows the calls of a graph in the order of its code, so a run of the graph is found by the names of its calls
one after the other. Where one is missing or another stands between, the calls that are certain all the same are placed
(`perfkit.tree.sequences`). A graph that runs several times in one pass serves several modules with the same code. Where
a range tells which module it runs for, or the hook of an FSDP unit ran last before it, its calls have the places that
they have in the module that the compiler saw, moved to that one: those of `h.0.mlp.fc` in the range of `h.3` are of
`h.3.mlp.fc`. In no module's range, a graph of the whole model, whose calls lie in several parts of it, ran for several
micro-batches: that model is there once, and its places hold for each run. Elsewhere calls are not placed.

Several graphs may have the same calls, as the parts of a graph that was divided at buckets of gradients have. Where a
pass has as many runs of them as there are graphs, they are taken in the order in which they were generated, which is
that in which they ran first.

What a CUDA graph replays has its calls by the names of its generated kernels (`replays`).

What runs beside the graphs is the model's own work, as it is in eager; what runs in one and is no call that it told of
is not placed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.profile_names import FORWARD_PASSES, GRAPH_RUNS, PASS, ROOT
from perfkit.readers.columns import Booleans, Coded, Integers
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, DeviceEvents, HostEvents
from perfkit.readers.kineto.place.launches import Launches
from perfkit.readers.kineto.place.places import Place
from perfkit.readers.kineto.place.replays import Replays, find_replays
from perfkit.tree import shares
from perfkit.tree.placement import CALL_SITE, MODEL, SUFFIX, Placement, Words, distinct_pairs
from perfkit.tree.sequences import MOST_CELLS, align
from perfkit.tree.shares import CallSite, Member, Work

PROVENANCE = "provenance"
_UNIT_BEGINS = re.compile(r"FSDP::pre_(?:forward|backward)(?: \((.+)\))?$")  # a unit's hook; the root has no name


@dataclass(frozen=True)
class _Run:
    """A run of a graph: the events of its calls, in the order of time."""

    graph: int
    events: Integers


@dataclass(frozen=True)
class Located:
    """Where the calls of compiled `graphs` ran: all `sites` in order, of each host event its site, an index into them,
    or −1; of each site its work, where it is certain whose, and how often its graph runs in one pass at most; the host
    events that may be calls, and what CUDA graphs replayed of them (None: nothing was replayed)."""

    graphs: Sequence[Sequence[CallSite]]
    sites: Sequence[CallSite]
    of_event: Integers
    work: Sequence[Work | None]
    times: Sequence[int]
    called: Booleans
    replays: Replays | None


def find_call_sites(
    host: HostEvents, graphs: Sequence[Sequence[CallSite]], device: DeviceEvents | None, launches: Launches | None
) -> Located | None:
    """Find the calls of `graphs` among the host events, and among what a `device` replayed; None without any."""
    sites = [site for graph in graphs for site in graph]
    if not sites or not len(host):
        return None
    called = _called(host, graphs)
    of_event, times, shared_out = locate(host, graphs, called)
    replays = None
    if device is not None and launches is not None and launches.replayed.any():
        replays = find_replays(device, launches, graphs)
    return Located(graphs, sites, of_event, _certain(graphs, shared_out), times, called, replays)


def _certain(graphs: Sequence[Sequence[CallSite]], shared_out: Sequence[bool]) -> list[Work | None]:
    """The work of each site, None where another graph with the same calls does other work there and nothing tells which
    of them ran: a function that was compiled again for another shape calls its kernels the same."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, graph in enumerate(graphs):
        alike.setdefault(tuple(site.name for site in graph), []).append(number)
    found = []
    for number, graph in enumerate(graphs):
        others = [graphs[other] for other in alike[tuple(site.name for site in graph)]]
        for place, site in enumerate(graph):
            same = shared_out[number] or all(other[place].work == site.work for other in others)
            found.append(site.work if same else None)
    return found


def by_call_sites(
    host: HostEvents,
    places: Place,
    chosen: Integers,
    module: Coded,
    passes: Coded,
    located: Located | None,
    warnings: list[str],
) -> list[Placement]:
    """What the calls of compiled graphs say of the rows of the `chosen` host events (−1: none), or of all activities,
    and what beside them is the model's.

    `module` and `passes` are those of the rows by the events; nothing without graphs. Adds to `warnings` what could not
    be placed.
    """
    if located is None:
        return []
    graphs, replays, times = located.graphs, located.replays, located.times
    site = np.where(chosen >= 0, located.of_event[np.maximum(chosen, 0)], -1)
    if replays is not None and len(replays.graph):
        site = np.where(replays.site >= 0, replays.site, site)
        often = np.repeat(_often(host, places, replays, len(graphs)), [len(graph) for graph in graphs])
        times = np.maximum(times, often).tolist()
    whole = np.repeat([_of_whole_model(graph) for graph in graphs], [len(graph) for graph in graphs])
    told = _told(located.sites, site, times, whole, _or_unit(host, chosen, module), warnings)
    outside = (chosen >= 0) & ~_in_graphs(host, located.called)[np.maximum(chosen, 0)]
    return [told, _beside(places, np.where(outside & (module.code < 0), chosen, -1), passes)]


def _or_unit(host: HostEvents, chosen: Integers, module: Coded) -> Coded:
    """The module around each row; where there is none the FSDP unit whose hook ran last before the row's event, in
    whichever thread: on a GPU PyTorch's backward runs in one of its own."""
    units = [hook and (hook[1] or "") for hook in map(_UNIT_BEGINS.match, host.names)]
    hooks = np.flatnonzero(host.named([unit is not None for unit in units]) & (host.category == ANNOTATION))
    if not len(hooks):
        return module
    hooks = hooks[np.argsort(host.start[hooks], kind="stable")]
    last = np.searchsorted(host.start[hooks], host.start[np.maximum(chosen, 0)], side="right") - 1
    known = Coded.of([unit or None for unit in units])
    unit = np.where((chosen >= 0) & (last >= 0), known.code[host.name[hooks[np.maximum(last, 0)]]], -1)
    moved = np.where(unit >= 0, unit + len(module.words), -1)
    return Coded([*module.words, *known.words], np.where(module.code >= 0, module.code, moved))


def _often(host: HostEvents, places: Place, replays: Replays, graphs: int) -> Integers:
    """How often each graph is replayed in one pass at most, or in one step where no pass is marked."""
    runs = [_Run(graph, np.array([call])) for graph, call in zip(replays.graph, replays.call, strict=True)]
    passes = np.array(_passes(host, runs), np.int64)
    within = np.where(passes >= 0, passes, -2 - places.step[replays.call])
    pairs, count = np.unique(np.column_stack([replays.graph, within]), axis=0, return_counts=True)
    often = np.zeros(graphs, np.int64)
    np.maximum.at(often, pairs[:, 0], count)
    return often


def _of_whole_model(graph: Sequence[CallSite]) -> bool:
    """Whether the calls of a graph lie in no module that has siblings: in the model itself, or in several parts of it.

    The paths of a program's only trained model begin with its parts; where there are several, with their classes, and
    a graph of one of them does not tell whether another runs it too.
    """
    parts = {member.module.split(".")[0] for site in graph for member in site.members}
    return ROOT in parts or len(parts) > 1


def _told(
    sites: Sequence[CallSite], site: Integers, times: Sequence[int], whole: Booleans, module: Coded, warnings: list[str]
) -> Placement:
    """What the `site` of each row (−1: none) says; `times` each site's graph runs in a pass at most. Of one that runs
    several times the row's own `module` tells for which, unless it is of the `whole` model and in no module's range.
    Adds to `warnings` which graphs could not be placed."""
    shared = np.array([count > 1 for count in times] + [False])
    pairs, which = distinct_pairs(site, np.where(shared[site], module.code, -1))
    found: list[tuple[CallSite, Member] | None] = []
    for number, around in pairs:
        moved, inside = sites[number] if number >= 0 else None, module.words[around] if around >= 0 else ""
        if moved is not None and shared[number] and not (whole[number] and inside in ("", ROOT)):
            moved = _moved(moved, inside)
        found.append((moved, shares.main(moved.members)) if moved is not None and moved.members else None)
    lost = [n for (n, _), one in zip(pairs, found, strict=True) if n >= 0 and shared[n] and one is None]
    warnings += [
        f"a compiled graph runs {count} × in one pass, and nothing tells for which modules: its kernels are not placed"
        for count in sorted({times[n] for n in lost if sites[n].members})
    ]
    columns = {
        "module": [one[1].module if one else None for one in found],
        "operator": [one[1].operator if one else None for one in found],
        "placed_by": [PROVENANCE if one else None for one in found],
        "serves": [shares.text(one[0].members) if one else None for one in found],
        SUFFIX: [f"generated:{one[0].line}" if one and one[0].line else None for one in found],
    }
    return Placement(CALL_SITE, {name: Words.of(words, which) for name, words in columns.items()})


def _moved(site: CallSite, module: str) -> CallSite | None:
    """A site whose graph runs for `module`, although the compiler saw another: `h.0.fc` in `h.3` is `h.3.fc`. None
    where one of its members does not lie in such a module."""
    around = module.split(".")
    members = []
    for member in site.members:
        path = member.module.split(".")
        if not module or [_kind(one) for one in path[: len(around)]] != [_kind(one) for one in around]:
            return None
        members.append(member._replace(module=".".join([*around, *path[len(around) :]])))
    return site._replace(members=tuple(members))


def _kind(name: str) -> str:
    """A part of a path, with one sign for all numbers."""
    return "*" if name.isdigit() else name


def _called(host: HostEvents, graphs: Sequence[Sequence[CallSite]]) -> Booleans:
    """Which events may be calls: operators with the name of one, inside no other."""
    names = {s.name for g in graphs for s in g}
    return _outermost(host, host.named([n in names for n in host.names]) & (host.category == OPERATOR))


def _runs_of_graphs(host: HostEvents) -> Booleans:
    return host.named([n.startswith(GRAPH_RUNS) for n in host.names]) & (host.category == ANNOTATION)


def _in_graphs(host: HostEvents, called: Booleans) -> Booleans:
    """Whether each event ran in the code of a graph; where runs are not marked, in what may be a call."""
    marked = _runs_of_graphs(host)
    inside: Booleans = host.nearest(marked if marked.any() else called) >= 0
    return inside


def locate(
    host: HostEvents, graphs: Sequence[Sequence[CallSite]], called: Booleans
) -> tuple[Integers, list[int], list[bool]]:
    """For each host event the call site that it ran in, an index into all sites of `graphs` in order, or −1; for each
    site how often its graph runs in one pass at most; and whether each graph was told from those with the same calls.

    `called` are the events that may be calls.
    """
    words: dict[str, int] = {}
    code = np.array([words.setdefault(n, len(words)) for n in host.names], dtype=np.int64)
    starts = np.cumsum([0, *(len(g) for g in graphs)])
    sequences = [np.array([words.get(s.name, -1) for s in g], dtype=np.int64) for g in graphs]
    own = np.full(len(host), -1, np.int64)
    runs: list[_Run] = []
    for segment, whole in _segments(host, called):
        runs += _placed_runs(segment, code[host.name[segment]], sequences, starts, own, whole)
    often, told = _shared_out(host, sequences, starts, own, runs)
    return host.inherit(own), [count for graph, count in enumerate(often) for _ in graphs[graph]], told


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
) -> list[_Run]:
    """Give the events of a segment their call sites; returns the runs of graphs in it.

    A `whole` segment is one run of one graph: it fits as a whole, or is aligned.
    """
    found: list[_Run] = []
    at = 0
    longest_first = sorted(range(len(sequences)), key=lambda g: -len(sequences[g]))
    while at < len(events):
        graph = next((g for g in longest_first if _begins(names, at, sequences[g])), None)
        if graph is None or (whole and len(sequences[graph]) != len(events)):
            at += 1
            continue
        length = len(sequences[graph])
        own[events[at : at + length]] = starts[graph] + np.arange(length)
        found.append(_Run(graph, events[at : at + length]))
        at += length
    if not found and whole and len(events):
        return _aligned(events, names, sequences, starts, own)
    return found


def _begins(names: Integers, at: int, sequence: Integers) -> bool:
    return len(sequence) > 0 and np.array_equal(names[at : at + len(sequence)], sequence)


def _aligned(
    events: Integers, names: Integers, sequences: Sequence[Integers], starts: Integers, own: Integers
) -> list[_Run]:
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
    return [_Run(graph, events[site >= 0])]


def _shared_out(
    host: HostEvents, sequences: Sequence[Integers], starts: Integers, own: Integers, runs: Sequence[_Run]
) -> tuple[list[int], list[bool]]:
    """Share the runs of a pass out over the graphs that have the same calls, where there is one for each; how often
    each graph runs in one pass at most, and whether all its runs were shared out."""
    alike: dict[bytes, list[int]] = {}
    for graph, sequence in enumerate(sequences):
        alike.setdefault(sequence.tobytes(), []).append(graph)
    often = [0] * len(sequences)
    told: list[list[bool]] = [[] for _ in sequences]
    by_pass: dict[tuple[bytes, int], list[_Run]] = {}
    for run, number in zip(runs, _passes(host, runs), strict=True):
        if number < 0:
            told[run.graph].append(False)
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
            told[graph].append(each)
    return often, [bool(shared) and all(shared) for shared in told]


def _passes(host: HostEvents, runs: Sequence[_Run]) -> list[int]:
    """The outermost range of a pass that each run lies in, by time: on a GPU PyTorch's backward runs in a thread of its
    own. −1: none."""
    ranges = np.flatnonzero(_outermost(host, host.named([n.startswith(PASS) for n in host.names])))
    ranges = ranges[np.argsort(host.start[ranges], kind="stable")]
    moments = np.array([host.start[run.events[0]] for run in runs], np.int64)
    last = np.searchsorted(host.start[ranges], moments, side="right") - 1
    inside = (last >= 0) & (moments < host.end[ranges[np.maximum(last, 0)]]) if len(ranges) else last >= 0
    return np.where(inside, last, -1).tolist()


def _beside(places: Place, chosen: Integers, passes: Coded) -> Placement:
    """That the `chosen` rows (−1: another) are the model's own, where they are forward, or backward in autograd."""
    in_node = places.node[np.maximum(chosen, 0)] >= 0
    words = np.array([*passes.words, ""], dtype=object)[passes.code]
    forward, backward = np.isin(words, FORWARD_PASSES) & ~in_node, (words == "backward") & in_node
    which = np.where(chosen >= 0, np.select([forward, backward], [0, 1], -1), -1)
    evidence = ["range", "autograd"]
    return Placement(MODEL, {"module": Words.of([ROOT, ROOT], which), "placed_by": Words.of(evidence, which)})
