"""Thunder: the model as a printable trace, each of its symbols claimed by the first executor that can run it.

How it is called, and why so:
- `thunder.jit(model)` alone would do; `settings.executors` gives the priority list instead of Thunder's default one.
- The cache stays at "constant values": a prologue checks shapes, dtypes and the like of every argument and parameter
  at each call. "same input" would skip that, but Thunder 0.2.6 refuses it ("not supported"); "no caching" traces at
  every call.
- The model returns outputs and loss, and only the loss is differentiated: autograd hands the trace zeros for the
  outputs' gradient, and Thunder adds them, as it does for any model that returns both (thunder-llmc does not:
  `executor.none_gradients`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfkit.backends import generation, parallel
from perfkit.backends.interface import AutogradProgram, Backend
from perfkit.backends.thunder import support
from perfkit.backends.thunder.distributed import TRACED
from perfkit.backends.thunder.origins import ModulePaths, recording
from perfkit.errors import PerfkitError, RunFailed
from perfkit.profile_names import ROOT
from perfkit.run_folder import Settings, Symbol

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.batch_formats import Outputs
    from perfkit.workloads.interface import Batch, Workload

_LONGEST = 200  # characters of Thunder's message in a sentence; the log has all
_EMPTY = re.compile(r"ProvenanceRecord\(\s*\)")
_ORIGIN = re.compile(r"(i\d+) = PseudoInst\.(\w+\([^)]*\))")


@dataclass(frozen=True)
class Traces:
    """Traces of one kind of call: all stages of computation and backward, the executed ones last."""

    computation: Sequence[Any]
    backward: Sequence[Any]

    @property
    def executed(self) -> dict[str, Any]:
        """The traces that run, without perfkit's marks, by the direction; no backward for inference."""
        from perfkit.backends.thunder.line_ranges import without_marks

        traces = {"forward": without_marks(self.computation[-1])}
        return traces | {"backward": without_marks(self.backward[-1])} if self.backward else traces


class TracedCallable:
    """A callable that `thunder.jit` made, and its traces: those of training, once there are any."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.traces: Traces | None = None
        self._seen_misses = 0

    def tracing(self) -> bool:
        """Return whether a trace was begun since the last look and not finished."""
        thunder = support.load()
        finished = thunder.compile_stats(self.call).last_traces
        begun = thunder.cache_misses(self.call) != self._seen_misses
        return begun and (finished is None or (self.traces is not None and finished is self.traces.computation))

    def look(self, training: bool) -> None:
        """Keep the traces of a call that made new ones; a cache hit would show an older backward."""
        thunder = support.load()
        misses = thunder.cache_misses(self.call)
        if misses != self._seen_misses:
            self._seen_misses = misses
            if training or self.traces is None or not self.traces.backward:
                self.traces = Traces(thunder.last_traces(self.call), thunder.last_backward_traces(self.call))


class ThunderProgram(AutogradProgram):
    """A model compiled by Thunder, known by its traces after the first call; of a step that generates, decode's.

    Each line of the executed traces is a range with the module and operator of its work (`marks`).
    """

    replays_passes = True

    def __init__(
        self,
        workload: Workload,
        model: torch.nn.Module,
        settings: Settings,
        executors: Sequence[Any] | None,
        transforms: Sequence[Any] = (),
    ) -> None:
        thunder = support.load()
        from perfkit.backends.thunder.line_ranges import LineRanges

        self._modules = ModulePaths(model)
        call = thunder.jit(model, executors=executors, transforms=[*transforms, LineRanges(self._modules)])
        if settings.in_group:
            made = TRACED[settings.parallel](workload, call, settings)
            super().__init__(workload, model, made.call, made.optimizer, parallel=made)
        else:
            super().__init__(workload, model, call, workload.optimizer(model, settings) if settings.training else None)
        self._compiled = {"": TracedCallable(self.call)}
        if settings.generate:
            # One for each: a cache of two would try the prompt's call as a token's first, and a check that fails writes
            # the cache's numbers into a message (30 ms of a step with four layers on a CPU; on a GPU a wait a number).
            marked = [*transforms, LineRanges(self._modules, self._lines_of_prefill)]
            token = thunder.jit(model, executors=executors, transforms=marked)
            self._compiled = {generation.PREFILL: TracedCallable(call), generation.DECODE: TracedCallable(token)}
            self.generating = generation.calls(call)[0], generation.calls(token)[1]
        self._warnings: list[str] = []

    def forward(self, batch: Batch) -> tuple[Outputs, torch.Tensor | None]:
        """Run one batch, and record the origin of symbols."""
        with self._traced():
            result = super().forward(batch)
        self._look(training=False)
        return result

    def train_step(self, batches: Sequence[Batch]) -> tuple[Outputs, torch.Tensor | None]:
        """Run a step, and record the origin of symbols."""
        with self._traced():
            result = super().train_step(batches)
        self._look(training=True)
        return result

    @contextmanager
    def _traced(self) -> Iterator[None]:
        """Record where symbols come from. Raises `RunFailed` for a model that Thunder cannot trace."""
        with recording(self._modules, self._warn):
            try:
                yield
            except Exception as error:
                if isinstance(error, PerfkitError | MemoryError) or not self._tracing():
                    raise
                raise untraceable(error, self._modules) from error

    def _tracing(self) -> bool:
        return any(compiled.tracing() for compiled in self._compiled.values())

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)

    def warnings(self) -> list[str]:
        """Return sentences about places of the traces that stayed unknown."""
        return [*self._warnings, *super().warnings()]

    def _look(self, training: bool) -> None:
        for compiled in self._compiled.values():
            compiled.look(training)

    @property
    def traces(self) -> Traces | None:
        """The traces of the program; None before its first step."""
        return [compiled.traces for compiled in self._compiled.values()][-1]

    def symbols(self) -> list[Symbol]:
        """Return the symbols of the executed traces."""
        if self.traces is None:
            return []
        traces = self.traces.executed.items()
        return [symbol for direction, trace in traces for symbol in executed_symbols(direction, trace)]

    def generated(self) -> str:
        """Return the executed traces as text."""
        return self._text(self._compiled)

    def _lines_of_prefill(self) -> int:
        from perfkit.backends.thunder.line_ranges import BETWEEN

        self._compiled[generation.PREFILL].look(training=False)  # it was traced in the step that traces decode
        return len((self._text([generation.PREFILL]) + BETWEEN).splitlines())

    def _text(self, names: Iterable[str]) -> str:
        """The executed traces of the compiled callables of these names, one after the other."""
        from perfkit.backends.thunder.line_ranges import BETWEEN, as_text

        found = {name: traces.executed for name in names if (traces := self._compiled[name].traces)}
        return BETWEEN.join(as_text(traces, name) for name, traces in found.items())


def untraceable(error: Exception, modules: ModulePaths) -> RunFailed:
    """Return the error for a model that Thunder cannot trace: the module, and the beginning of Thunder's message."""
    path = module_in(str(error)) or modules.left_by(error)
    text = " ".join(_EMPTY.sub("a value ", _ORIGIN.sub("", str(error))).split())
    said = text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0]} …"
    where = f"the module {path}" if path not in ("", ROOT) else "its outermost module"
    return RunFailed(f"Thunder could not trace the model, in {where}: {type(error).__name__}: {said}.")


def module_in(text: str) -> str:
    """The module path in Thunder's account of where a value came from (`LOAD_ATTR(i1, '_modules')` …); "" for none.

    Thunder notices after it has gone through the whole model that it cannot do what the model's code did.
    """
    lines = dict(_ORIGIN.findall(text))
    known: dict[str, str] = {}
    for name, line in lines.items():
        of, _, what = line.partition(", ")
        if line.startswith("LOAD_ATTR(") and what.startswith("'_modules'"):
            known[name] = known.get(of.partition("(")[2], "")
        elif line.startswith("BINARY_SUBSCR(") and (held := of.partition("(")[2]) in known:
            known[name] = f"{known[held]}.{what.strip(')').strip(chr(39))}".strip(".")
    return list(known.values())[-1] if known else ""


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
        """Return why Thunder cannot run here, or None."""
        if settings is not None and settings.dtype == "fp8":
            return "Thunder alone has no products of fp8: choose thunder-llmc or another backend, or --dtype bf16."
        return parallel.cannot(self.name, settings, tuple(TRACED)) or support.unavailable(settings)

    def load(self, settings: Settings) -> None:
        """Import Thunder."""
        support.load()

    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> ThunderProgram:
        """Make Thunder's program of the model."""
        executors = support.executors(settings.executors) if settings.executors else None
        return ThunderProgram(workload, model, settings, executors)
