"""CUDA graphs of the parts of a step by hand: each captured once, then replayed by one launch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class Graph(Protocol):
    """A captured graph."""

    def replay(self) -> None:
        """Launch all of it once more."""


Run = Callable[[], Any]


def capture(run: Run, pool: Any) -> tuple[Graph, Any, Any]:
    """The graph of what `run` launches, what it gave, and the graph's memory, for the next graph's `pool`.

    Raises `RuntimeError` where `run` does what no graph can hold, such as waiting for the GPU.
    What runs meanwhile on other threads does not matter.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = run()
    return graph, result, graph.pool()


class Graphs:
    """Runs parts of a step by their graphs.

    A part is first run as it is, which compiles its kernels (with `ran` the caller did that), then captured, then
    replayed. It must launch the same kernels each time, on the same memory, with the same numbers, and wait for
    nothing. Graphs share the memory that their parts take for themselves: what one leaves there, none after it reads.
    """

    def __init__(self, capture: Callable[[Run, Any], tuple[Graph, Any, Any]] = capture, ran: bool = False) -> None:
        self._capture = capture
        self._ran = ran
        self._known: set[Hashable] = set()
        self._captured: dict[Hashable, tuple[Graph, Any]] = {}
        self._pool: Any = None
        self._inputs: tuple[Tensor, ...] = ()

    @property
    def held(self) -> float:
        """Bytes of the GPU's memory that are the graphs' own."""
        segments = torch.cuda.memory_snapshot() if self._pool is not None else []
        return float(sum(s["total_size"] for s in segments if tuple(s["segment_pool_id"]) == tuple(self._pool)))

    @property
    def replays(self) -> bool:
        """Return whether anything was captured."""
        return bool(self._captured)

    def inputs(self, batch: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The batch, copied to where the graphs read it: by one launch, for a token's pass is short."""
        if not self._inputs:
            self._inputs = tuple(torch.empty_like(tensor) for tensor in batch)
        torch._foreach_copy_(list(self._inputs), list(batch))
        return self._inputs

    def run(self, part: Hashable, run: Run) -> Any:
        """Return the results of `run()`, by the graph of `part` once there is one; the same tensors at each replay."""
        if not self._ran and part not in self._known:
            self._known.add(part)
            return run()
        if part not in self._captured:
            graph, result, self._pool = self._capture(run, self._pool)
            self._captured[part] = graph, result
        graph, result = self._captured[part]
        graph.replay()
        return result
