"""The profiling pass: a few steps under torch.profiler, apart from the timed ones, and their kernel table."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit import ranges, timing
from perfkit.backends.interface import Program
from perfkit.capture.agent import order
from perfkit.capture.agent.lines.line_step import LineStep
from perfkit.capture.agent.tracing import owned_tensors
from perfkit.capture.agent.tracing import profiler as profilers
from perfkit.capture.packing import packed, packed_lines
from perfkit.errors import RunFailed
from perfkit.run_folder import Settings

if TYPE_CHECKING:
    import torch

    from perfkit.table import KernelTable
    from perfkit.workloads.interface import Workload


_PLAIN = "trace.json"


@dataclass(frozen=True)
class ExportedTrace:
    """An exported trace (plain JSON) that awaits its folder; the wall time of each step, and what an event costs."""

    scratch: tempfile.TemporaryDirectory[str]  # removed with the recording
    step_ns: list[float]
    event_cost_ns: float
    notes: list[str] = field(default_factory=list)  # why source lines are missing, or some of them

    @property
    def trace(self) -> Path:
        """The file of the profiler's trace."""
        return Path(self.scratch.name) / _PLAIN

    @property
    def lines(self) -> Path | None:
        """The file of the trace with lines; None where none was made."""
        found = Path(self.scratch.name) / order.LINES
        return found if found.is_file() else None


@dataclass(frozen=True)
class WrittenProfile:
    """A finished profile: the trace file, the wall time of each profiled step, and what an event costs to record."""

    trace: Path
    step_ns: list[float]
    event_cost_ns: float
    lines: Path | None = None


class StepRecorder:
    """A profiler that records steps, in several parts where others run between them.

    `start` starts the profiler after one unrecorded `run(0)`; `steps` records `run(1)`, `run(2)`, …; `finish` ends it.
    What happens between the steps is outside of them.
    """

    def __init__(self, program: Program, settings: Settings, run: Callable[[int], object]) -> None:
        self._program, self._settings, self._run = program, settings, run
        self._synchronize = timing.synchronizer(settings.device) or (lambda: None)
        self._step_ns: list[float] = []

    def start(self) -> None:
        """Start recording. Where it fails nothing stays switched on."""
        self._event_cost_ns = profilers.event_cost_ns()
        marked = self._program.keeps_modules
        with contextlib.ExitStack() as stack:
            self._profiler = stack.enter_context(
                profilers.recording(self._settings.device != "cpu", self._settings.profile_memory)
            )
            stack.enter_context(ranges.modules_marked(self._program.model) if marked else contextlib.nullcontext())
            if self._settings.profile_memory:
                self._note = stack.enter_context(_noting(self._program))
            stack.enter_context(timing.collector_off())
            self._run(0)  # the profiler's own first events are slow: let them fall into a step that is not recorded
            self._synchronize()
            self._profiler.step()
            self._open = stack.pop_all()

    def steps(self, count: int) -> None:
        """Record the next `count` steps."""
        with contextlib.ExitStack() as stack:
            stack.push(self._open)
            for _ in range(count):
                index = len(self._step_ns)
                started = time.perf_counter_ns()
                with ranges.step(index):
                    self._run(index + 1)
                    self._synchronize()
                self._step_ns.append(float(time.perf_counter_ns() - started))
            self._open = stack.pop_all()

    def finish(self) -> ExportedTrace:
        """Stop, export the trace, and give what was recorded. Raises `RunFailed` when the profiler wrote nothing."""
        if self._settings.profile_memory:
            self._note.write(self._profiler)
        # No step() since the last recorded step: it would arm a new window, and the export would be empty.
        self._open.close()
        # Export first: another profiler session clears the GPU's records of this one, and leaves zeros in their place.
        scratch = exported(self._profiler)
        del self._profiler
        notes = self._record_lines(Path(scratch.name))
        # The smaller of two measurements: the other may hold a moment in which others slowed this machine.
        return ExportedTrace(scratch, self._step_ns, min(self._event_cost_ns, profilers.event_cost_ns()), notes)

    def _record_lines(self, folder: Path) -> list[str]:
        """Record the source lines of one further step; return why they are missing. Ranks would have to agree on it."""
        result = order.ProcessResult(step_ns=self._step_ns)
        step = LineStep(order.Order(lines=self._settings.lines), folder, result)
        if self._settings.ranks > 1 or not step.wanted(moved=False):
            return result.notes
        with timing.collector_off():
            step.begin(self._settings.device != "cpu")
            try:
                self._run(len(self._step_ns))
                self._synchronize()
            finally:
                step.end()
        return result.notes


@contextlib.contextmanager
def _noting(program: Program) -> Iterator[owned_tensors.OwnedTensors]:
    """Note what the program holds each time that an optimizer of PyTorch's is about to step, while the block runs."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    notes = owned_tensors.OwnedTensors()

    def note(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if ranges.listening():
            model = program.model
            notes.note(owned_tensors.named(dict(model.named_parameters()), dict(model.named_buffers()), [optimizer]))

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield notes
    finally:
        handle.remove()


def record(program: Program, settings: Settings, run: Callable[[int], object], steps: int) -> ExportedTrace:
    """Profile `run(1)` … `run(steps)` after one unrecorded `run(0)`."""
    recorder = StepRecorder(program, settings, run)
    recorder.start()
    recorder.steps(steps)
    return recorder.finish()


def exported(profiler: torch.profiler.profile) -> tempfile.TemporaryDirectory[str]:
    """A folder of its own with the trace of a stopped profiler. Raises `RunFailed` when the profiler wrote nothing."""
    scratch = tempfile.TemporaryDirectory(prefix="perfkit-trace-")
    if not profilers.export(profiler, Path(scratch.name) / _PLAIN):
        raise RunFailed("torch.profiler wrote no trace.", "Run again with --profiler none to get the timings alone.")
    return scratch


def write(recording: ExportedTrace, folder: Path, name: str = "") -> WrittenProfile:
    """Write the trace into `folder`, as `packed` does."""
    lines = packed_lines(recording.lines, folder) if recording.lines else None
    return WrittenProfile(packed(recording.trace, folder, name), recording.step_ns, recording.event_cost_ns, lines)


def table_of(
    program: Program,
    workload: Workload,
    settings: Settings,
    result: WrittenProfile | ExportedTrace,
    timed_ns: float | None = None,
) -> KernelTable:
    """Read the trace into the kernel table, with the costs of perfkit's own and of generated kernels.

    `timed_ns` is what a step takes without the profiler. Raises `UnusableProfile` for a trace that fails a check.
    """
    from perfkit import kernels
    from perfkit.readers.kineto.checks import Expected
    from perfkit.readers.kineto.trace import read_trace

    return read_trace(
        result.trace,
        costs=kernels.cost_model(settings.kernel_dirs),
        passes=workload.passes,
        layers=workload.layers,
        declared=program.declared_kernels(),
        matmul_precision="tf32" if settings.dtype == "tf32" else "fp32",
        event_cost_ns=result.event_cost_ns,
        call_sites=program.call_sites(),
        stepped=program.stepped(),
        lines=result.lines,
        expected=Expected(len(result.step_ns), settings.device != "cpu", timed_ns),
    )
