"""Measurements made once on a machine to choose between equivalent ways: GPU times, and the files that keep them."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from perfkit.cache import cache_dir, locked

ROUNDS = 7
WARM = 3  # calls before the capture: libraries choose and load their kernels there


def kept(kind: str, facts: Sequence[Any], measure: Callable[[], Any]) -> Any:
    """Return `measure()` for these facts on this machine: read from the cache, else measured and written there.

    `kind` is the folder. Facts and result are what JSON holds; a cache that cannot be written costs a measurement.
    """
    name = hashlib.sha256(json.dumps(list(facts)).encode()).hexdigest()[:16]
    path = cache_dir() / kind / f"{name}.json"
    with locked(path):
        try:
            return json.loads(path.read_text())["found"]
        except (OSError, ValueError, KeyError):
            found = measure()
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps({"of": list(facts), "found": found}))
            except OSError:
                pass
            return found


def replayed_ns(runs: Sequence[Callable[[], Any]], calls: int = 1) -> list[float]:
    """Median GPU time in ns of one call of each, replayed as CUDA graphs of `calls` calls, in turns.

    Launched one by one, calls for a small batch would measure the host's time to launch them.
    """
    graphs, results = [], []
    for run in runs:
        for _ in range(WARM):
            run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results.append([run() for _ in range(calls)])  # they live as long as the graph writes there
        graphs.append(graph)
    samples: list[list[float]] = [[] for _ in graphs]
    for _ in range(ROUNDS):
        for graph, times in zip(graphs, samples, strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e6 / calls)
    del results
    return [statistics.median(times) for times in samples]
