"""Call sites of what CUDA graphs replay, where a compiled graph was captured.

A replay's kernels have no operator around them, but a compiler's own kernels have names that it told of. So the code of
a compiled graph is found in a replay by the names of its generated kernels, one after the other and complete. What runs
between two of them, a library's product or attention, belongs to the call that the code has there: each kernel to one
where there are as many calls, all of them to the only one. Where the numbers differ nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import DeviceEvents
from perfkit.readers.kineto.place.launches import Launches
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
    """Of each run of a graph in a replay of kernels with these `names`: the graph, the places in `names` of what
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
                found.append((graph, *_between(run, theirs[graph], len(graphs[graph]), run[0] if at else 0, last)))
                at += len(run)
                break
        else:
            at += 1
    return found


def _between(run: list[int], calls: list[int], count: int, first: int, last: int) -> tuple[list[int], list[int]]:
    """The places from `first` to before `last` and their calls of `count`: `run` are those of the generated kernels,
    whose calls are `calls`; what lies between them goes to the calls between theirs."""
    places, sites = list(run), list(calls)
    for (low, of_low), (high, of_high) in zip(
        [(first - 1, -1), *zip(run, calls, strict=True)], [*zip(run, calls, strict=True), (last, count)], strict=True
    ):
        kernels, others = range(low + 1, high), range(of_low + 1, of_high)
        if len(kernels) == len(others) or len(others) == 1:
            places += kernels
            sites += list(others) if len(kernels) == len(others) else [others[0]] * len(kernels)
    return places, sites
