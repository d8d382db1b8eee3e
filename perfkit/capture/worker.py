"""One backend in a process of its own: the child's side.

Each backend runs in its own process, so that its peak memory is its own, a crash takes nothing else with it, and the
parent can interleave timed steps between backends. The parent sends `(command, arguments)` over a pipe; the child
answers `("progress", text)` any number of times and then `("done", result)` or `("error", (kind, message, hint))`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit import correctness, faults, ranges, timing
from perfkit.backends.interface import Program
from perfkit.capture import memory, profile
from perfkit.capture.updates import Updates
from perfkit.errors import OutOfMemory, PerfkitError, RunFailed, UnusableProfile, UsageError
from perfkit.run_folder import GENERATED, KERNELS, Settings, WorkloadFacts, write_whole
from perfkit.workloads import forms

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.forms import Outputs
    from perfkit.workloads.interface import Batch, Workload


BESIDE = 4  # steps without a profiler right before the profiled ones


@dataclass
class Timed:
    """What timed steps took from the kernel: fresh pages (bytes), and CPU time in it (ns)."""

    steps: int = 0
    fresh_bytes: float = 0.0
    system_ns: float = 0.0

    def add(self, before: tuple[float, float], after: tuple[float, float]) -> None:
        """One step more, of `memory.paging()` before and after it."""
        self.steps += 1
        self.fresh_bytes += after[0] - before[0]
        self.system_ns += after[1] - before[1]


class Worker:
    """Holds a workload made executable by one backend; each public method is a command of the parent."""

    workload: Workload
    settings: Settings
    program: Program
    _dtype: torch.dtype
    _recorder: profile.Recorder
    _recording: profile.Recording
    _beside_ns: list[float]

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._next_step = 0
        self._prepare_ns = 0.0
        self._timed = Timed()
        self._samples_ns: list[float] = []

    def prepare(
        self, settings: Settings, backend: str, reference: bool = False, one_layer: bool = False
    ) -> tuple[WorkloadFacts, str]:
        """Build model and program; return the workload's facts and the precision.

        With `reference` the precision is not the settings' but the highest that fits in memory: fp64, else fp32. With
        `one_layer` the model keeps the first of its repeated layers only; raises `UsageError` where it has none.
        """
        import torch

        from perfkit import backends
        from perfkit.workloads import loader

        self.settings = settings
        self.workload = loader.find(settings.workload)
        self._progress("building the model")
        torch.manual_seed(settings.seed)
        model = self.workload.build(settings)
        if one_layer:
            keep_one_layer(model, self.workload.layers)
        parameters = sum(p.numel() for p in model.parameters())
        precision = self._reference_precision(parameters) if reference else settings.dtype
        self._dtype = _dtype(precision)
        model = model.to(device=settings.device, dtype=self._dtype).train(settings.training)
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        started = time.perf_counter_ns()
        self.program = backends.get(backend).prepare(self.workload, model, settings)
        self._prepare_ns = float(time.perf_counter_ns() - started)
        return self._facts(parameters), precision

    def _reference_precision(self, parameters: int) -> str:
        """fp64 where parameters, gradients, AdamW's two moments and as much again for activations and files fit."""
        words = 8 if self.settings.training else 3
        available = memory.available_bytes(self.settings.device)
        return "fp64" if available is None or parameters * 8.0 * words < available else "fp32"

    def _facts(self, parameters: int) -> WorkloadFacts:
        work, settings = self.workload, self.settings
        return WorkloadFacts(
            title=work.title(settings),
            parameters=parameters,
            samples_per_step=work.samples_per_step(settings),
            sample_name=work.sample_name,
            model_flop=work.model_flop(settings),
            passes={k: tuple(v) for k, v in work.passes.items()},
            data_source=work.describe_data(settings),
        )

    def first_steps(self, steps: int, reference: str, write: bool = False) -> dict[str, Any]:
        """Run the first `steps` steps; write their results as the reference, or measure the error against it.

        Returns what was found (`correctness.Found`; losses alone when writing), the time of the first step and of
        preparation, and warnings.
        """
        folder, losses = Path(reference), []
        errors: dict[str, float | None] = {}
        first_ns = 0.0
        follows = self.settings.training and not write and not self.workload.has("step")
        updates = Updates(self.program, self.workload, self.settings) if follows else None
        for index in range(steps):
            self._progress(f"{'first steps' if write else 'correctness'} · step {index + 1} of {steps}")
            self.program.outputs_wanted = index == 0
            if updates:
                updates.before()
            started = time.perf_counter_ns()
            outputs, loss = self._step()
            if loss is not None:
                losses.append(float(loss))
            if index == 0:
                first_ns = time.perf_counter_ns() - started
                results = self._results(outputs, loss)
                if write:
                    correctness.write_reference(folder, results)
                else:
                    errors = correctness.errors_against(folder, results)
                del results
            del outputs, loss
            if updates:
                updates.after(index + 1, compare=index in (0, steps - 1))
        if updates:
            updates.close()
        return {
            "found": correctness.Found(
                losses=losses,
                errors=errors,
                updates=updates.errors if updates else {},
                updates_in=self.program.updates_in,
                parts=[] if write else self.program.checks(),
                problems=self.program.problems(),
            ),
            "first_step_ns": float(first_ns),
            "prepare_ns": self._prepare_ns + first_ns,
            "warnings": updates.warnings if updates else [] if write else self._unchecked(),
        }

    def _unchecked(self) -> list[str]:
        """A step of the workload's own may change parameters by more than its optimizer: a schedule, a clipping."""
        own = self.settings.training and self.workload.has("step")
        return ["The step is the workload's own: what its optimizer changes was not checked by itself."] if own else []

    def _results(self, outputs: Outputs, loss: torch.Tensor | None) -> dict[str, torch.Tensor]:
        results = forms.by_name(outputs, correctness.OUTPUTS) | ({} if loss is None else {"loss": loss})
        if self.settings.training:
            results.update({f"gradient of {name}": g for name, g in self.program.gradients().items()})
        return results

    def settle(self, steps: int) -> list[float]:
        """Untimed-by-contract steps that let caches, clocks and allocators settle; their times in ns."""
        return self._measure(steps)

    def time(self, steps: int, settle: int = 0, settle_ns: float = 0.0) -> list[float]:
        """Time `steps` steps; ns each. `settle` steps before them are not counted, fewer where `settle_ns` pass."""
        with timing.collector_off():
            passed = 0.0
            for _ in range(settle):
                passed += sum(self._measure(1))
                if 0 < settle_ns <= passed:
                    break
            samples = self._measure(steps, self._timed)
        self._samples_ns += samples
        return samples

    def paging(self) -> tuple[float | None, float | None]:
        """Fresh pages (bytes) and CPU time in the kernel (ns) of a timed step, on average since the last reset; None
        where none was timed."""
        steps = self._timed.steps
        if not steps:
            return None, None
        return self._timed.fresh_bytes / steps, self._timed.system_ns / steps

    def _measure(self, steps: int, timed: Timed | None = None) -> list[float]:
        """Run and time `steps` steps; what they took from the kernel is added to `timed`.

        A step's data is made right before it, outside its time, and goes with it: the peak of memory holds one batch,
        however many steps are measured.
        """
        batches: list[Batch] = []
        started = (0.0, 0.0)

        def prepare(_: int) -> None:
            nonlocal started
            batches[:] = self._batches(self._next_step)
            started = memory.paging()

        def step() -> None:
            with ranges.step(self._next_step):
                self._run(batches)

        def finish(_: int) -> None:
            if timed is not None:
                timed.add(started, memory.paging())
            batches.clear()
            self._next_step += 1

        synchronize = timing.synchronizer(self.settings.device)
        return timing.measure(step, 0, steps, synchronize=synchronize, before=prepare, after=finish).ns

    def _step(self) -> tuple[Outputs, torch.Tensor | None]:
        batches = self._batches(self._next_step)
        self._next_step += 1
        return self._run(batches)

    def _run(self, batches: Sequence[Batch]) -> tuple[Outputs, torch.Tensor | None]:
        if self.settings.training:
            return self.program.train_step(batches)
        return self.program.forward(batches[0])

    def _batches(self, step: int) -> list[Batch]:
        """The micro-batches of a step, on the device and in the model's precision before the step begins."""
        settings = self.settings
        count = settings.grad_accumulation if settings.training else 1
        made = (self.workload.batch(settings, step * count + i) for i in range(count))
        return [forms.placed(batch, settings.device, self._dtype) for batch in made]

    def reset_peak_memory(self) -> None:
        """Begin a new peak: what came before (building, checking) does not count.

        What torch keeps for good is taken out of the collector's sight: a collection before every timed turn would go
        through all of it, 0.15 s each, and empty the caches.
        """
        gc.collect()
        gc.freeze()
        memory.reset_peak(self.settings.device)
        self._timed = Timed()

    def peak_memory(self) -> tuple[float | None, str]:
        """Peak memory since the last reset, in bytes, and how it was measured."""
        return memory.peak(self.settings.device)

    def profile(self, folder: str, steps: int) -> dict[str, Any]:
        """Profile `steps` steps into `folder`: trace and kernel table. Returns what the manifest keeps of it."""
        self.record(steps)
        return self.read_recording(folder)

    def record(self, steps: int) -> None:
        """Profile `steps` steps, and keep what was recorded for `read_recording`."""
        self.start_recording(steps)
        self.record_steps(steps)
        self.finish_recording()

    def start_recording(self, steps: int) -> None:
        """Start a profile of `steps` steps.

        What the profiler adds is told by steps right before: the timed ones may be minutes old, and other backends'
        processes had the caches and the machine since.
        """
        self._progress("profiling")
        self._measure(1)  # finds cold caches
        self._beside_ns = self._measure(BESIDE)
        batches = [self._batches(self._next_step + i) for i in range(steps + 1)]
        self._next_step += steps + 1
        self._recorder = profile.Recorder(self.program, self.settings, lambda i: self._run(batches[i]))
        self._recorder.start()

    def record_steps(self, steps: int) -> None:
        """Record the next `steps` of the steps that `start_recording` was told of."""
        self._recorder.steps(steps)

    def finish_recording(self) -> None:
        """End the profile, and keep what was recorded for `read_recording`."""
        self._recording = self._recorder.finish()
        del self._recorder

    def read_recording(self, folder: str) -> dict[str, Any]:
        """Write the recorded steps' trace and kernel table into `folder`. Returns what the manifest keeps of it.

        An unusable trace is kept, and has no kernel table: the steps' times are right all the same.
        """
        self._progress("reading the trace")
        result = profile.write(self._recording, Path(folder))
        del self._recording
        gc.collect()
        kept = {"trace": result.trace.name, "profiled_ns": result.step_ns, "beside_ns": self._beside_ns}
        try:
            table = profile.table_of(self.program, self.workload, self.settings, result, self._timed_ns())
        except UnusableProfile as error:
            return {**kept, "unusable": f"{error.reason}. {error.hint}", "trace_checks": error.checks}
        table.write(Path(folder) / KERNELS)
        return {**kept, "unusable": "", "trace_checks": []}

    def _timed_ns(self) -> float:
        """A step without the profiler in ns, of two measurements the slower: the clocks of a GPU change."""
        return max(statistics.median(ns) for ns in (self._samples_ns, self._beside_ns) if ns)

    def describe(self, folder: str) -> dict[str, Any]:
        """What the program says of itself after it ran: symbols, warnings, and the file with the program as text."""
        text = self.program.generated()
        if text:
            write_whole(Path(folder) / GENERATED, text)
        named = GENERATED if text else ""
        program = self.program
        return {
            "symbols": program.symbols(), "warnings": program.warnings(), "compiler": program.compiler(),
            "generated": named,
        }  # fmt: skip

    def demonstrate(self) -> str:
        """The workload's own sign that the model works."""
        return self.workload.demonstrate(self.program.model, self.settings)


def keep_one_layer(model: torch.nn.Module, pattern: str) -> None:
    """Cut the repeated layers that `pattern` (such as `transformer.h.*`) names down to the first, in place.

    Raises `UsageError` where the workload names none, or they are no list of modules.
    """
    import torch

    parent, star, rest = pattern.partition(".*")
    try:
        found = model.get_submodule(parent) if star and not rest else None
    except AttributeError:
        found = None
    if not isinstance(found, torch.nn.ModuleList | torch.nn.Sequential) or not len(found):
        raise UsageError(
            "--one-layer needs a workload that names its repeated layers, a torch.nn.ModuleList.",
            'Give it `layers = "path.of.the.list.*"`, or leave --one-layer out.',
        )
    del found[1:]


def _dtype(name: str) -> torch.dtype:
    import torch

    return {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}[name]


def serve(pipe: Connection) -> None:
    """Answer commands until the parent hangs up."""
    worker = Worker(lambda text: pipe.send(("progress", text)))
    while True:
        try:
            command, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(worker, command, arguments))


def _answer(worker: Worker, command: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    try:
        with ranges.listening_modules(getattr(worker, "program", None)):
            return "done", getattr(worker, command)(**arguments)
    except PerfkitError as error:
        if error.__cause__ is not None:
            traceback.print_exc()  # the log has what the sentence leaves out
        return "error", (type(error).__name__, error.message, error.hint)
    except OSError as error:
        return "error", (RunFailed.__name__, f"{error.strerror or error}.", "")
    except Exception as error:  # anything a backend or a user's model throws becomes a sentence; the log has the rest
        traceback.print_exc()
        failure = explained(error)
        return "error", (type(failure).__name__, failure.message, failure.hint)


SMALLER = "Take a smaller batch (-B) or sequence (-T), --recompute, or --dtype bf16."


def explained(error: Exception) -> RunFailed:
    """An exception of somebody else's code as a sentence and, where it is known, the next step."""
    wanted = re.search(r"(?i)tried to allocate (\d+(?:\.\d+)? ?\w+)", str(error))
    if not isinstance(error, RuntimeError | MemoryError) or not (wanted or "out of memory" in str(error)):
        return RunFailed(faults.sentence(error))
    where = "The GPU's memory" if "CUDA" in str(error) else "Memory"
    more = f": {wanted[1]} more were asked for" if wanted else ""
    return OutOfMemory(f"{where} ran out{more}.", SMALLER)


def main() -> None:
    """Serve on the pipe whose file descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends its children
    pipe = Connection(int(sys.argv[1]))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
        serve(pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skip the teardown of torch and OpenMP: seconds for nothing


if __name__ == "__main__":
    main()
