"""One backend in a process of its own: what its parent can command (`serving` has the pipe between them).

Each backend runs in its own process, so that its peak memory is its own, a crash takes nothing else with it, and the
parent can interleave timed steps between backends.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perfkit import fp8, ranges, timing
from perfkit.backends.generation import Generation
from perfkit.backends.interface import AutogradProgram, Program
from perfkit.backends.parallel.ranks import Ranks, join
from perfkit.capture.agent.recording.paging import paging
from perfkit.capture.agent.recording.recorder import gpu_uuid
from perfkit.errors import Unavailable
from perfkit.kernels import mkl
from perfkit.readers.unusable import UnusableProfile
from perfkit.run import memory, profile
from perfkit.run.first_steps import Checking
from perfkit.run.one_layer import keep_one_layer
from perfkit.run.ranks import files
from perfkit.run_folder import GENERATED, KERNELS, Settings, WorkloadFacts, write_whole
from perfkit.settings import HELD_IN
from perfkit.workloads import batch_formats

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.batch_formats import Outputs
    from perfkit.workloads.interface import Batch, Workload


BESIDE, BESIDE_LONG = 4, 2  # steps without a profiler right before the profiled ones; of steps of 0.4 s and more


@dataclass
class Timed:
    """Costs of timed steps in the kernel: fresh pages (bytes), and CPU time in it (ns)."""

    steps: int = 0
    fresh_bytes: float = 0.0
    system_ns: float = 0.0

    def add(self, before: tuple[float, float], after: tuple[float, float]) -> None:
        """One step more, of `paging()` before and after it."""
        self.steps += 1
        self.fresh_bytes += after[0] - before[0]
        self.system_ns += after[1] - before[1]


class Worker:
    """Holds a workload made executable by one backend; each public method is a command of the parent."""

    workload: Workload
    settings: Settings
    ranks: Ranks
    program: Program
    _dtype: torch.dtype
    _generation: Generation  # of a workload that generates tokens
    _recorder: profile.StepRecorder
    _recording: profile.ExportedTrace
    _beside_ns: list[float]

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._next_step = 0
        self._prepare_ns = 0.0
        self._timed = Timed()
        self._samples_ns: list[float] = []
        self._spans: list[tuple[float, float]] = []  # of timed steps: from, to, in seconds since the epoch
        self._tokens_ns: list[list[float]] = []

    def load(self, settings: Settings, backend: str) -> None:
        """Import what `prepare` will need, and open the GPU."""
        _import(settings, backend)
        import torch

        torch.zeros((), device=settings.device)

    def prepare(
        self, settings: Settings, backend: str, reference: bool = False, one_layer: bool = False, highest: str = "fp64"
    ) -> tuple[WorkloadFacts, str]:
        """Build model and program; return the workload's facts and the precision.

        With `reference` the precision is not the settings' but `highest` where that is likely to fit in memory, else
        fp32. With `one_layer` the model keeps the first of its repeated layers only; raises `UsageError` where it has
        none.
        """
        _import(settings, backend)
        import torch

        from perfkit import backends
        from perfkit.workloads import loader

        mkl.choose_vector_functions()
        self.ranks = join(settings)  # of several ranks each has a device and a share of the batch of its own
        self.settings = settings = self.ranks.own(settings)
        self.workload = loader.find(settings.workload)
        if settings.allocator == "keep" and not reference:
            memory.keep_freed()
        self._progress("building the model")
        torch.manual_seed(settings.seed)
        model = self.workload.build(self._small(settings) if reference else settings)
        if one_layer:
            keep_one_layer(model, self.workload.layers)
        sizes = {name: p.numel() for name, p in model.named_parameters()}
        frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
        parameters = sum(sizes.values())
        precision = self._reference_precision(parameters, highest) if reference else settings.dtype
        self._dtype = _dtype(precision)
        model = model.to(device=settings.device, dtype=self._dtype).train(settings.training)
        if precision == "fp8":
            fp8.convert(model, self.workload.layers)
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        started = time.perf_counter_ns()
        self.program = backends.get(backend).prepare(self.workload, model, _of_one_rank(settings))
        if settings.generate:
            if not isinstance(self.program, AutogradProgram):
                raise Unavailable(f"The backend {backend} generates no tokens.", "Leave --generate out.")
            self.program.generation = self._generation = Generation(self.workload, model, settings)
        if isinstance(self.program, AutogradProgram) and not reference:
            self.program.replay_where_asked(settings)
        self._prepare_ns = float(time.perf_counter_ns() - started)
        return self._facts(sizes, frozen), precision

    def _small(self, settings: Settings) -> Settings:
        """Settings of a reference, which keeps few activations where it can: on a GPU it is to fit where bf16 fits."""
        keeps = settings.device == "cpu" or not settings.training or "recompute" not in self.workload.takes
        return settings if keeps else msgspec.structs.replace(settings, recompute=True)

    def _reference_precision(self, parameters: int, highest: str) -> str:
        """`highest` if in fp64 parameters, gradients, AdamW's two moments and as much again for activations and files
        fit; only a step shows what a large vocabulary's logits take beyond that."""
        words = 8 if self.settings.training else 3
        available = memory.available_bytes(self.settings.device)
        return highest if available is None or parameters * 8.0 * words < available else "fp32"

    def _facts(self, sizes: dict[str, int], frozen: list[str]) -> WorkloadFacts:
        work, settings = self.workload, self.settings
        eights = fp8.chosen(self.program.model, work.layers)[0] if settings.dtype == "fp8" else []
        return WorkloadFacts(
            title=work.title(settings),
            parameters=sum(sizes.values()),
            parameter_sizes=sizes,
            frozen=frozen,
            samples_per_step=work.samples_per_step(settings),
            sample_name=work.sample_name,
            model_flop=work.model_flop(settings),
            passes={k: tuple(v) for k, v in work.passes.items()},
            data_source=work.describe_data(settings),
            phases=work.phases(self.program.model, settings) if settings.generate else [],
            notes=fp8.described(self.program.model, work.layers, settings.device) if eights else [],
            fp8_layers=eights,
        )

    def first_steps(self, steps: int, reference: str, write: bool = False) -> dict[str, Any]:
        """Run the first `steps` steps; write their results as the reference, or measure the error against it.

        Returns what was found (`correctness.FirstSteps`; losses alone when writing), the time of the first step and of
        preparation, and warnings.
        """
        checking = Checking(self.program, self.workload, self.settings, self.ranks, self._progress)
        if self.settings.generate:
            batch = self._batches(self._next_step)[0]
            self._next_step += 1
            found = checking.tokens(self._generation, batch, Path(reference), write)
        else:
            found = checking.steps(self._step, steps, Path(reference), write)
        return {**found, "prepare_ns": self._prepare_ns + found["first_step_ns"]}

    def tokens_ns(self) -> list[list[float]]:
        """Times of each timed step: to its first token, and for each further one."""
        return self._tokens_ns

    def first_step(self) -> list[float]:
        """A first step whose results nobody asks for: it compiles. Its time in ns, in a list.

        Steps to settle come in several turns, and would otherwise collect for 0.15 to 0.3 s before each.
        """
        first = self._measure(1)
        _keep()
        return first

    def settle(self, steps: int) -> list[float]:
        """Untimed-by-contract steps that let caches, clocks and allocators settle; their times in ns."""
        return self._measure(steps)

    def time(self, steps: int, settle: int = 0, settle_ns: float = 0.0) -> list[float]:
        """Time `steps` steps; ns each. `settle` steps before them are not counted, fewer where `settle_ns` pass."""
        with timing.collector_off():
            passed = 0.0
            for _ in range(settle):
                passed += self.ranks.most(sum(self._measure(1)))
                if 0 < settle_ns <= passed:
                    break
            begun = time.time()
            samples = self._measure(steps, self._timed)
            self._spans.append((begun, time.time()))
        self._samples_ns += samples
        if self.settings.generate:
            self._tokens_ns += self._generation.take()[-steps:]
        return samples

    def paging(self) -> tuple[float | None, float | None]:
        """Fresh pages (bytes) and CPU time in the kernel (ns) of a timed step, on average since the last reset; None
        where none was timed."""
        steps = self._timed.steps
        if not steps:
            return None, None
        return self._timed.fresh_bytes / steps, self._timed.system_ns / steps

    def spans(self) -> tuple[str, list[tuple[float, float]]]:
        """The UUID of the GPU, "" of a CPU, and when steps were timed since the last reset, for who watches it."""
        return gpu_uuid(self.settings.device), self._spans

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
            self.ranks.meet()  # a rank's longer time to make its batch is not part of the others' step
            started = paging()

        def step() -> None:
            with ranges.step(self._next_step):
                self._run(batches)

        def finish(_: int) -> None:
            if timed is not None:
                timed.add(started, paging())
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
        return [batch_formats.placed(self._share(batch), settings.device, self._dtype) for batch in made]

    def _share(self, batch: Batch) -> Batch:
        rank, ranks = self.ranks.rank, self.ranks.size
        return batch_formats.share(batch, rank, ranks, self.settings.batch_size) if ranks > 1 else batch

    def reset_peak_memory(self) -> None:
        """Begin a new peak: what came before (building, checking) does not count."""
        _keep()
        memory.reset_peak(self.settings.device)
        self._timed = Timed()
        self._spans.clear()

    def memory_share(self) -> float:
        """The share of the GPU's memory that this process took at most; 1 on a CPU, where it is not asked for."""
        import torch

        if self.settings.device == "cpu":
            return 1.0
        whole: int = torch.cuda.get_device_properties(self.settings.device).total_memory
        return torch.cuda.max_memory_reserved(self.settings.device) / whole

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

    def start_recording(self, steps: int, beside: int | None = None) -> None:
        """Start a profile of `steps` steps.

        `beside` steps right before show what the profiler adds: the timed ones may be minutes old, and other
        backends' processes had the caches and the machine since. Without any, what the timed ones took is held good.
        """
        self._progress("profiling")
        if beside is None:
            beside = BESIDE_LONG if statistics.median(self._samples_ns or [0.0]) >= 0.4e9 else BESIDE
        if beside:
            self._measure(1)  # finds cold caches
        self._beside_ns = self._measure(beside)
        batches = [self._batches(self._next_step + i) for i in range(steps + 1)]
        self._next_step += steps + 1
        self._recorder = profile.StepRecorder(self.program, self.settings, lambda i: self._run(batches[i]))
        self._recorder.start()

    def record_steps(self, steps: int) -> None:
        """Record the next `steps` of the steps announced to `start_recording`; several ranks begin together."""
        self.ranks.meet()
        self._recorder.steps(steps)

    def finish_recording(self) -> None:
        """End the profile, and keep what was recorded for `read_recording`."""
        self._recording = self._recorder.finish()
        del self._recorder

    def read_recording(self, folder: str, keep_trace: bool = True) -> dict[str, Any]:
        """Write the recorded steps' trace and kernel table into `folder`. Returns what the manifest keeps of it.

        An unusable trace is kept, and has no kernel table: the steps' times are right all the same. Without
        `keep_trace` it is read as the profiler wrote it, and goes: packing takes as long as half of the reading.
        """
        self._progress("reading the trace")
        result: profile.ExportedTrace | profile.WrittenProfile = self._recording
        kept: dict[str, Any] = {"beside_ns": self._beside_ns, "unusable": "", "trace_checks": []}
        kept["profiled_ns"] = result.step_ns
        if keep_trace:
            with files.written(Path(folder), self.ranks, kept) as near:
                result = profile.write(self._recording, near, f"rank{self.ranks.rank}" if self.ranks.size > 1 else "")
                kept["trace"] = result.trace.name
        notes = self._recording.notes
        del self._recording
        gc.collect()
        if self.ranks.rank:
            return kept  # the run's kernel table is rank 0's
        try:
            table = profile.table_of(self.program, self.workload, self.settings, result, self._timed_ns())
            table.warnings += notes
        except UnusableProfile as error:
            return {**kept, "unusable": f"{error.reason}. {error.hint}", "trace_checks": error.checks}
        table.write(Path(folder) / KERNELS)
        return kept

    def _timed_ns(self) -> float:
        """Return a step without the profiler in ns, the slower of two measurements: the clocks of a GPU change."""
        return max(statistics.median(ns) for ns in (self._samples_ns, self._beside_ns) if ns)

    def describe(self, folder: str) -> dict[str, Any]:
        """Return the program's facts after it ran: symbols, warnings, and the file with the program as text."""
        text = self.program.generated()
        if text and not self.ranks.rank:
            write_whole(Path(folder) / GENERATED, text)
        named = GENERATED if text else ""
        program = self.program
        return {
            "symbols": program.symbols(), "warnings": program.warnings(), "compiler": program.compiler(),
            "generated": named, "replays": program.replayed,
        }  # fmt: skip

    def demonstrate(self) -> str:
        """The workload's own sign that the model works."""
        return self.workload.demonstrate(self.program.model, self.settings)


def _import(settings: Settings, backend: str) -> None:
    """Import what a program needs, without the collector and out of its sight: it would go through modules, which stay,
    dozens of times as they come, and again in a first step that compiles: 0.5 to 1 s in all."""
    with timing.collector_off():
        from perfkit import backends
        from perfkit.workloads import loader

        loader.find(settings.workload)
        backends.get(backend).load(settings)
        if settings.training:
            import torch._dynamo  # noqa: F401  # as PyTorch's optimizers do
    gc.freeze()


def _keep() -> None:
    """Take what torch and compilers keep for good out of the collector's sight: a collection before every timed turn
    would go through all of it, 0.15 s each, and empty the caches."""
    gc.collect()
    gc.freeze()


def _of_one_rank(settings: Settings) -> Settings:
    """Return the `settings` of a backend: the batch is this rank's share."""
    return msgspec.structs.replace(settings, batch_size=settings.batch_size // settings.ranks)


def _dtype(name: str) -> torch.dtype:
    import torch

    known = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
    return known[HELD_IN.get(name, name)]
