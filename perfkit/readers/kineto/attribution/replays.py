"""Call sites of what CUDA graphs replay, where a compiled graph was captured.

A replay's kernels have no operator around them, but a compiler's own kernels have names that it recorded. So the code
of a compiled graph is found in a replay by the names of its generated kernels, one after the other and complete. What
runs between two of them, a library's product or attention, belongs to the call that the code has there: each kernel to
one where there are as many calls, all of them to the only one. Where the numbers differ, kernels go to calls of their
kind: attention that fills and prepares before it computes is followed by the product that follows it in the code. What
is of no call's kind, or where the kinds do not decide, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from perfkit.columns import Integers
from perfkit.cost import CostModel
from perfkit.readers.kineto.attribution.gpu_steps import Launches
from perfkit.readers.kineto.decode.events import DeviceEvents
from perfkit.tree.shares import CallSite

GENERATED = "triton_"  # with which the names of Inductor's kernels on a GPU begin


@dataclass(frozen=True)
class Replays:
    """For each activity its call site, an index into those of all graphs in order, and the run of a graph that it is
    of, each −1 for none; and for each run of a graph in a replay the graph and the call that launched the replay."""

    site: Integers
    run: Integers
    graph: Integers
    call: Integers


def find_replays(device: DeviceEvents, launches: Launches, graphs: Sequence[Sequence[CallSite]]) -> Replays:
    """Find the runs of compiled `graphs` in the replays of CUDA graphs."""
    site, of_run = np.full(len(device), -1, np.int64), np.full(len(device), -1, np.int64)
    replayed = np.flatnonzero(launches.replayed)
    found: list[tuple[int, int]] = []
    if len(replayed) and any(graphs):
        starts = np.cumsum([0, *(len(graph) for graph in graphs)]).tolist()
        order = replayed[np.lexsort((device.start[replayed], launches.call[replayed]))]
        ends = np.flatnonzero(np.diff(launches.call[order])) + 1
        for one in np.split(order, ends):
            names = [device.names[code] for code in device.name[one].tolist()]
            for graph, at, sites in _runs(names, graphs):
                site[one[at]] = np.array(sites, np.int64) + starts[graph]
                of_run[one[at]] = len(found)
                found.append((graph, int(launches.call[one[0]])))
    runs = np.array(found, np.int64).reshape(-1, 2)
    return Replays(site, of_run, runs[:, 0], runs[:, 1])


def _runs(names: Sequence[str], graphs: Sequence[Sequence[CallSite]]) -> list[tuple[int, list[int], list[int]]]:
    """Return for each run of a graph in a replay of kernels with these `names` the graph, the places in `names` of what
    belongs to it, and their calls."""
    mine = [i for i, name in enumerate(names) if name.startswith(GENERATED)]
    theirs = [[i for i, site in enumerate(graph) if site.name.startswith(GENERATED)] for graph in graphs]
    longest_first = sorted((g for g in range(len(graphs)) if theirs[g]), key=lambda g: -len(theirs[g]))
    found, at = [], 0
    while at < len(mine):
        for graph in longest_first:
            run = mine[at : at + len(theirs[graph])]
            if [names[i] for i in run] == [graphs[graph][i].name for i in theirs[graph]]:
                last = len(names) if at + len(run) == len(mine) else run[-1] + 1
                found.append((graph, *_between(run, theirs[graph], names, graphs[graph], run[0] if at else 0, last)))
                at += len(run)
                break
        else:
            at += 1
    return found


def _between(
    run: list[int], calls: list[int], names: Sequence[str], graph: Sequence[CallSite], first: int, last: int
) -> tuple[list[int], list[int]]:
    """The places in `names` from `first` to before `last`, and their calls in `graph`: `run` are those of the generated
    kernels, whose calls are `calls`; what lies between them goes to the calls between theirs."""
    places, sites = list(run), list(calls)
    edges = [*zip(run, calls, strict=True), (last, len(graph))]
    for (low, of_low), (high, of_high) in zip([(first - 1, -1), *edges], edges, strict=False):
        kernels, others = range(low + 1, high), range(of_low + 1, of_high)
        if len(kernels) == len(others) or len(others) == 1:
            places += kernels
            sites += list(others) if len(kernels) == len(others) else [others[0]] * len(kernels)
            continue
        for kernel, call in _of_a_kind([names[i] for i in kernels], [graph[i].name for i in others]):
            places.append(kernels[kernel])
            sites.append(others[call])
    return places, sites


def _of_a_kind(kernels: Sequence[str], calls: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of a kernel and the call that it belongs to, by their families; none where these do not decide.

    Without kernels of no call's family, both must be the same runs of families, each with as many kernels as calls or
    with one call. What lies between kernels of one call is its own too.
    """
    costs = CostModel()
    of_calls = [costs.family(call) for call in calls]
    of_kernels = [costs.family(kernel) for kernel in kernels]
    theirs = _in_runs((i, family) for i, family in enumerate(of_kernels) if family in of_calls)
    runs = _in_runs(enumerate(of_calls))
    if [family for family, _ in theirs] != [family for family, _ in runs]:
        return []
    pairs: list[tuple[int, int]] = []
    for (_, mine), (_, called) in zip(theirs, runs, strict=True):
        if len(called) == 1:
            pairs += [(kernel, called[0]) for kernel in range(mine[0], mine[-1] + 1)]
        elif len(mine) == len(called):
            pairs += zip(mine, called, strict=True)
        else:
            return []
    return pairs


def _in_runs(families: Iterable[tuple[int, str]]) -> list[tuple[str, list[int]]]:
    """Neighbours of one family together, with their places."""
    return [(family, [i for i, _ in run]) for family, run in groupby(families, key=lambda one: one[1])]
