"""Thunder: the model as a printable trace, each of its symbols claimed by the first executor that can run it.

How it is called, and why so:
- `thunder.jit(model)` alone would do; `settings.executors` gives the priority list instead of Thunder's default one.
- The cache stays at "constant values": a prologue checks shapes, dtypes and the like of every argument and parameter
  at each call. "same input" would skip that, but Thunder 0.2.6 refuses it ("not supported"); "no caching" traces at
  every call.
- The model returns outputs and loss, and only the loss is differentiated: autograd hands the trace zeros for the
  outputs' gradient, and Thunder adds them, as it does for any model that returns both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfkit.backends import thunder_support
from perfkit.backends.interface import AutogradProgram, Backend
from perfkit.backends.traces.origins import Modules, recording
from perfkit.run_folder import Settings, Symbol

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.interface import Batch, Workload


@dataclass(frozen=True)
class Traces:
    """What Thunder made of one kind of call: all stages of computation and backward, the executed ones last."""

    computation: Sequence[Any]
    backward: Sequence[Any]

    @property
    def executed(self) -> dict[str, Any]:
        """The traces that run, without perfkit's marks, by the direction; no backward for inference."""
        from perfkit.backends.traces.marks import without_marks

        traces = {"forward": without_marks(self.computation[-1])}
        return traces | {"backward": without_marks(self.backward[-1])} if self.backward else traces


class ThunderProgram(AutogradProgram):
    """A model compiled by Thunder, known by its traces after the first call; those of training stand for it.

    Each line of the executed traces is a range that tells the module and operator of its work (`traces.marks`).
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, executors: Sequence[Any] | None
    ) -> None:
        thunder = thunder_support.load()
        from perfkit.backends.traces.marks import Marks

        self._modules = Modules(model)
        call = thunder.jit(model, executors=executors, transforms=[Marks(self._modules)])
        super().__init__(model, call, optimizer)
        self.traces: Traces | None = None
        self._seen_misses = 0
        self._warnings: list[str] = []

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
        with recording(self._modules, self._warn):
            result = super().forward(batch)
        self._look(training=False)
        return result

    def train_step(self, batches: Sequence[Batch]) -> tuple[torch.Tensor, torch.Tensor]:
        with recording(self._modules, self._warn):
            result = super().train_step(batches)
        self._look(training=True)
        return result

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)

    def warnings(self) -> list[str]:
        return list(self._warnings)

    def _look(self, training: bool) -> None:
        """Keep the traces of a call that made new ones; a cache hit would show an older backward."""
        thunder = thunder_support.load()
        misses = thunder.cache_misses(self.call)
        if misses != self._seen_misses:
            self._seen_misses = misses
            if training or self.traces is None or not self.traces.backward:
                self.traces = Traces(thunder.last_traces(self.call), thunder.last_backward_traces(self.call))

    def symbols(self) -> list[Symbol]:
        if self.traces is None:
            return []
        traces = self.traces.executed.items()
        return [symbol for direction, trace in traces for symbol in executed_symbols(direction, trace)]

    def generated(self) -> str:
        if self.traces is None:
            return ""
        from perfkit.backends.traces.marks import as_text

        return as_text(self.traces.executed)


def executed_symbols(direction: str, trace: Any) -> list[Symbol]:
    """Each symbol of an executed trace with its executor and how often it runs, without Python's own (del, return)."""
    ran = [b.sym for b in trace.bound_symbols if b.sym.executor is not None and b.sym.executor.name != "python"]
    counts = Counter((symbol.name, str(symbol.executor.name)) for symbol in ran)
    return [Symbol(name=n, kernel=executor, trace=direction, count=c) for (n, executor), c in counts.items()]


class Thunder(Backend):
    """`thunder.jit(model)` with Thunder's default executors, or those of `settings.executors` in their order."""

    name = "thunder"
    summary = "Thunder: a trace of the model, run by its executors"

    def unavailable(self, settings: Settings | None = None) -> str | None:
        return thunder_support.unavailable(settings)

    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> ThunderProgram:
        executors = thunder_support.executors(settings.executors) if settings.executors else None
        optimizer = workload.optimizer(model, settings) if settings.training else None
        return ThunderProgram(model, optimizer, executors)
