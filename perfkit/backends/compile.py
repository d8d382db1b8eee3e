"""torch.compile: Dynamo captures the model's graph, Inductor fuses it and generates C++ (CPU) or Triton (CUDA) kernels.

Two of Inductor's options are set, and nothing else that changes what runs:
- `cpp.enable_kernel_profile`, on the CPU: each fused C++ kernel opens a profiler record of its own name. Without a
  profiler that is a flag test a kernel call. Launches of Triton kernels are recorded by their names anyway.
- `fx_graph_cache` off: a graph out of that cache comes without its scheduler, so nothing would be known of its
  kernels' work. The cache of compiled objects stays on; so the time to prepare holds tracing and code generation
  always, and the C++ compiler or Triton only where the code is new.

Never run a compiled callable under a TorchDispatchMode: it would silently run eagerly.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from perfkit.backends import generation, parallel
from perfkit.backends.eager import NO_TORCH
from perfkit.backends.interface import AutogradProgram, Backend
from perfkit.errors import torch_installed
from perfkit.inductor.dynamo import Compilations
from perfkit.inductor.fused import GeneratedKernel
from perfkit.inductor.recording import BETWEEN, CPU_OPTIONS, DESCRIBED, Recording, recording
from perfkit.inductor.work import work_of
from perfkit.run_folder import Check, DeclaredKernel, Settings
from perfkit.settings import COMPILE_MODES
from perfkit.tree.shares import CallSite
from perfkit.workloads import batch_formats
from perfkit.workloads.choices import not_one_of

if TYPE_CHECKING:
    import torch

    from perfkit.backends.parallel import Parallel
    from perfkit.workloads.batch_formats import Outputs
    from perfkit.workloads.interface import Batch, Workload


class CompiledProgram(AutogradProgram):
    """A compiled model, with what Inductor said of its kernels while it generated them.

    `whole` gives outputs and loss of a batch, compiled as one, where the workload has a loss of its own.
    """

    replays = replays_passes = None  # --compile-mode reduce-overhead is the compiler's own way

    def __init__(
        self,
        workload: Workload,
        model: torch.nn.Module,
        call: Any,
        optimizer: torch.optim.Optimizer | None,
        whole: Any = None,
        parallel: Parallel | None = None,
    ) -> None:
        super().__init__(workload, model, call, optimizer, parallel=parallel)
        self._whole = whole
        self.compiled: Callable[..., Any] = lambda call: call  # compiles a function as the model was
        self.recorded = Recording()
        self.recorded.sites.begin(model)
        self._compilations = Compilations()

    # Graphs compile at the first call, again at any call that a guard refuses, and the backward may come later still.
    def forward(self, batch: Batch) -> tuple[Outputs, torch.Tensor | None]:
        """Run one batch; the first one is compiled and recorded."""
        with recording(self.recorded):
            return super().forward(batch)

    def evaluated(self, batch: Batch) -> tuple[Any, Any]:
        """Model and loss in one compiled function, where the workload has a loss of its own."""
        return self._whole(batch) if self._whole is not None else super().evaluated(batch)

    def train_step(self, batches: Sequence[Batch]) -> tuple[Outputs, torch.Tensor | None]:
        """Run a step; the first one is compiled and recorded."""
        with recording(self.recorded):
            return super().train_step(batches)

    def checks(self) -> list[Check]:
        """Check compiled layers that multiply fp8; the report's counts are those of the step."""
        with self._compilations.ignoring():
            return super().checks()

    def calling(self, layers: Sequence[Any]) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
        """Return the layers' calls compiled as one, as the model is."""
        call: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]] = self.compiled(super().calling(layers))
        return call

    def declared_kernels(self) -> dict[str, DeclaredKernel]:
        """Inductor's kernels by the name that a trace has: the operators that each computes, and its work."""
        return {name: _declared(kernel) for name, kernel in self.recorded.known().items()}

    def generated(self) -> str:
        """The code of all graphs."""
        return BETWEEN.join(self.recorded.code)

    def call_sites(self) -> list[list[CallSite]]:
        """Return the calls of generated code, graph by graph."""
        return self.recorded.graphs()

    def warnings(self) -> list[str]:
        """Return what was said while code was generated, and Dynamo's graph breaks."""
        return [*self.recorded.said(), *self._compilations.warnings()]

    def compiler(self) -> dict[str, Any]:
        """Graphs, breaks and recompilations that Dynamo counted since this program was made."""
        return self._compilations.facts()


class Compile(Backend):
    """`torch.compile` with its `mode`, else `settings.compile_mode`, static shapes, graph breaks allowed."""

    name = "compile"
    summary = "torch.compile: Inductor's fused kernels"
    mode: ClassVar[str] = ""

    def variant(self, text: str) -> Backend:
        """`compile:MODE`: one of torch.compile's modes as a backend of its own, next to others. Raises `UsageError`."""
        if text not in COMPILE_MODES:
            raise not_one_of("compile:MODE", text, COMPILE_MODES)
        made: type[Compile] = type("Compile", (Compile,), {"name": f"{Compile.name}-{text}", "mode": text})
        return made()

    def unavailable(self, settings: Settings | None = None) -> str | None:
        """Why not: no Triton on a GPU, no C++ compiler on a CPU. Raises `UsageError` for a mode that is not known."""
        if not torch_installed():
            return NO_TORCH
        if settings is not None:
            mode_options(self.mode or settings.compile_mode)
        if settings is not None and settings.device.startswith("cuda"):
            missing = importlib.util.find_spec("triton") is None
            return "torch.compile needs Triton on a GPU: pip install triton." if missing else None
        return _no_cpp()

    def load(self, settings: Settings) -> None:
        """Import Dynamo and Inductor."""
        import torch._dynamo
        import torch._inductor.compile_fx  # noqa: F401  # what the first compilation imports

    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> CompiledProgram:
        """The model compiled for fixed shapes; compilation begins with the first step."""
        import torch

        described = CPU_OPTIONS if settings.device == "cpu" else DESCRIBED
        options = described | mode_options(self.mode or settings.compile_mode)
        compiled = functools.partial(torch.compile, fullgraph=False, dynamic=False, options=options)
        made = parallel.begin(workload, model, settings)
        whole = compiled(_with_loss(workload, made.call)) if workload.has("loss") else None
        program = CompiledProgram(workload, model, compiled(made.call), made.optimizer, whole, made)
        program.compiled = compiled
        if settings.generate:
            prefill, decode = generation.calls(model)
            program.generating = compiled(prefill), compiled(decode)
        return program


def _with_loss(workload: Workload, model: Callable[..., Any]) -> Callable[[Batch], tuple[Any, Any]]:
    """Return one function from a batch to what `model` returns and its loss: no graph ends between the two."""

    def evaluated(batch: Batch) -> tuple[Any, Any]:
        result = batch_formats.called(model, batch)
        return result, workload.loss(result, batch)

    return evaluated


def mode_options(mode: str) -> dict[str, Any]:
    """Inductor's options of `torch.compile(mode=…)`, which does not take mode and options together.

    Raises `UsageError` for an unknown mode.
    """
    if mode == "default":
        return {}
    import torch._inductor

    modes = torch._inductor.list_mode_options()
    if mode not in modes:
        raise not_one_of("--compile-mode", mode, ("default", *modes))
    return dict(modes[mode])


def _no_cpp() -> str | None:
    """Why Inductor cannot build C++ here, or None. It takes $CXX, else g++ (clang++ on macOS), and Python's headers."""
    if sys.platform == "win32":
        return "torch.compile is not supported by perfkit on Windows."
    default = "clang++" if sys.platform == "darwin" else "g++"
    command = shlex.split(os.environ.get("CXX", "")) or [default]
    if shutil.which(command[0]) is None:
        return f"torch.compile needs a C++ compiler, and {command[0]} is not installed: apt install g++, or set CXX."
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "torch.compile needs Python's headers (Python.h), and they are not here: apt install python3-dev."
    return None


def _declared(kernel: GeneratedKernel) -> DeclaredKernel:
    """A fused kernel with the work of its operations by the cost model."""
    return DeclaredKernel(**work_of(kernel))
