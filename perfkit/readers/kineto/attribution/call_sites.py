"""Kernels of compiled code, placed by the call sites that the compiler recorded (`perfkit.tree.shares.CallSite`).

A trace shows the calls of a graph in the order of its code, so a run of the graph is found by the names of its calls
one after the other. Where one is missing or another stands between, the calls that are certain all the same are placed
(`perfkit.tree.sequences`). A graph that runs several times in one pass serves several modules with the same code. Where
a range says which module it runs for, or the hook of an FSDP unit ran last before it, its calls have the places that
they have in the module that the compiler saw, moved to that one: those of `h.0.mlp.fc` in the range of `h.3` are of
`h.3.mlp.fc`. In no module's range, a graph of the whole model, with calls in several parts of it, ran for several
micro-batches: that model is there once, and its places hold for each run. Elsewhere calls are not placed.

Several graphs may have the same calls, as the parts of a graph that was divided at buckets of gradients have. Where a
pass has as many runs of them as there are graphs, they are taken in the order in which they were generated, which is
that in which they ran first.

What a CUDA graph replays has its calls by the names of its generated kernels (`replays`).

Work outside of the graphs is the model's own, as it is in eager; work in a graph that the compiler recorded no call of
is not placed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from perfkit.columns import Booleans, Coded, Integers
from perfkit.profile_names import FORWARD_PASSES, ROOT
from perfkit.readers.kineto.attribution.gpu_steps import Launches
from perfkit.readers.kineto.attribution.graph_runs import GraphRun, calls_among, in_graphs, locate, passes_of
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.attribution.replays import Replays, find_replays
from perfkit.readers.kineto.decode.events import ANNOTATION, DeviceEvents, HostEvents
from perfkit.tree import shares
from perfkit.tree.placement import CALL_SITE, MODEL, SUFFIX, Placement, Words, distinct_pairs
from perfkit.tree.shares import CallSite, OperatorShare, Work

PROVENANCE = "provenance"
T = TypeVar("T")
_UNIT_BEGINS = re.compile(r"FSDP::pre_(?:forward|backward)(?: \((.+)\))?$")  # a unit's hook; the root has no name


@dataclass(frozen=True)
class Located:
    """Places where the calls of compiled `graphs` ran: all `sites` in order, of each host event its site, an index
    into them, or −1; of each site its work and its line, where it is certain whose, and how often its graph runs in one
    pass at most; the host events that may be calls, and what CUDA graphs replayed of them (None: nothing was
    replayed)."""

    graphs: Sequence[Sequence[CallSite]]
    sites: Sequence[CallSite]
    of_event: Integers
    work: Sequence[Work | None]
    sources: Sequence[str | None]
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
    called = calls_among(host, graphs)
    of_event, times, shared_out = locate(host, graphs, called)
    replays = None
    if device is not None and launches is not None and launches.replayed.any():
        replays = find_replays(device, launches, graphs)
    work = _certain(graphs, shared_out, lambda site: site.work)
    sources = _certain(graphs, shared_out, lambda site: site.source or None)
    return Located(graphs, sites, of_event, work, sources, times, called, replays)


def sources_of(located: Located, chosen: Integers) -> Coded:
    """The line of the model of each row, by the host event that it is or was launched by (−1: none)."""
    words = Coded.of(list(located.sources))
    return Coded(words.words, np.append(words.code, -1)[_sites_of(located, chosen)].astype(np.int32))


def _sites_of(located: Located, chosen: Integers) -> Integers:
    """The site of each row, −1 for none."""
    site = np.where(chosen >= 0, located.of_event[np.maximum(chosen, 0)], -1)
    replays = located.replays
    return np.where(replays.site >= 0, replays.site, site) if replays is not None and len(replays.graph) else site


def _certain(
    graphs: Sequence[Sequence[CallSite]], shared_out: Sequence[bool], of: Callable[[CallSite], T | None]
) -> list[T | None]:
    """Return the facts `of` each site, None where another graph with the same calls has something else there and the
    trace does not show which of them ran: a function that was compiled again for another shape calls its kernels the
    same."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, graph in enumerate(graphs):
        alike.setdefault(tuple(site.name for site in graph), []).append(number)
    found: list[T | None] = []
    for number, graph in enumerate(graphs):
        others = [graphs[other] for other in alike[tuple(site.name for site in graph)]]
        for place, site in enumerate(graph):
            same = shared_out[number] or all(of(other[place]) == of(site) for other in others)
            found.append(of(site) if same else None)
    return found


def by_call_sites(
    host: HostEvents,
    places: EventPlaces,
    chosen: Integers,
    module: Coded,
    passes: Coded,
    located: Located,
    warnings: list[str],
) -> list[Placement]:
    """Return the places that compiled graphs give the rows of the `chosen` host events (−1: none), or all activities,
    and those of the model's own work next to them.

    `module` and `passes` are those of the rows by the events. Adds to `warnings` what could not
    be placed.
    """
    graphs, replays, times = located.graphs, located.replays, located.times
    site = _sites_of(located, chosen)
    if replays is not None and len(replays.graph):
        often = np.repeat(_often(host, places, replays, len(graphs)), [len(graph) for graph in graphs])
        times = np.maximum(times, often).tolist()
    whole = np.repeat([_of_whole_model(graph) for graph in graphs], [len(graph) for graph in graphs])
    located_words = _words_of_sites(located.sites, site, times, whole, _or_unit(host, chosen, module), warnings)
    outside = (chosen >= 0) & ~in_graphs(host, located.called)[np.maximum(chosen, 0)]
    return [located_words, _model_work(places, np.where(outside & (module.code < 0), chosen, -1), passes)]


def _or_unit(host: HostEvents, chosen: Integers, module: Coded) -> Coded:
    """Return the module around each row, else the FSDP unit whose hook ran last before the row's event, in
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


def _often(host: HostEvents, places: EventPlaces, replays: Replays, graphs: int) -> Integers:
    """How often each graph is replayed in one pass at most, or in one step where no pass is marked."""
    runs = [GraphRun(graph, np.array([call])) for graph, call in zip(replays.graph, replays.call, strict=True)]
    passes = np.array(passes_of(host, runs), np.int64)
    within = np.where(passes >= 0, passes, -2 - places.step[replays.call])
    pairs, count = np.unique(np.column_stack([replays.graph, within]), axis=0, return_counts=True)
    often = np.zeros(graphs, np.int64)
    np.maximum.at(often, pairs[:, 0], count)
    return often


def _of_whole_model(graph: Sequence[CallSite]) -> bool:
    """Return whether a graph's calls are in no module that has siblings: in the model, or in several parts of it.

    The paths of a program's only trained model begin with its parts; where there are several, with their classes, and
    a graph of one of them does not show whether another runs it too.
    """
    parts = {member.module.split(".")[0] for site in graph for member in site.members}
    return ROOT in parts or len(parts) > 1


def _words_of_sites(
    sites: Sequence[CallSite], site: Integers, times: Sequence[int], whole: Booleans, module: Coded, warnings: list[str]
) -> Placement:
    """Return the places by the `site` of each row (−1: none); `times` each site's graph runs in a pass at most. Of one
    that runs
    several times the row's own `module` says for which, unless it is of the `whole` model and in no module's range.
    Adds to `warnings` which graphs could not be placed."""
    shared = np.array([count > 1 for count in times] + [False])
    pairs, which = distinct_pairs(site, np.where(shared[site], module.code, -1))
    found: list[tuple[CallSite, OperatorShare] | None] = []
    for number, around in pairs:
        moved, inside = sites[number] if number >= 0 else None, module.words[around] if around >= 0 else ""
        if moved is not None and shared[number] and not (whole[number] and inside in ("", ROOT)):
            moved = _moved(moved, inside)
        found.append((moved, shares.main(moved.members)) if moved is not None and moved.members else None)
    lost = [n for (n, _), one in zip(pairs, found, strict=True) if n >= 0 and shared[n] and one is None]
    warnings += [
        f"a compiled graph runs {count} × in one pass, for unknown modules: its kernels are not placed"
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


def _kind(name: str) -> str:
    """A part of a path, with one sign for all numbers."""
    return "*" if name.isdigit() else name


def _moved(site: CallSite, module: str) -> CallSite | None:
    """A site whose graph runs for `module`, although the compiler saw another: `h.0.fc` in `h.3` is `h.3.fc`. None
    where one of its members is not in such a module."""
    around = module.split(".")
    members = []
    for member in site.members:
        path = member.module.split(".")
        if not module or [_kind(one) for one in path[: len(around)]] != [_kind(one) for one in around]:
            return None
        members.append(member._replace(module=".".join([*around, *path[len(around) :]])))
    return site._replace(members=tuple(members))


def _model_work(places: EventPlaces, chosen: Integers, passes: Coded) -> Placement:
    """That the `chosen` rows (−1: another) are the model's own, where they are forward, or backward in autograd."""
    in_node = places.node[np.maximum(chosen, 0)] >= 0
    words = np.array([*passes.words, ""], dtype=object)[passes.code]
    forward, backward = np.isin(words, FORWARD_PASSES) & ~in_node, (words == "backward") & in_node
    which = np.where(chosen >= 0, np.select([forward, backward], [0, 1], -1), -1)
    evidence = ["range", "autograd"]
    return Placement(MODEL, {"module": Words.of([ROOT, ROOT], which), "placed_by": Words.of(evidence, which)})
