"""PyTorch as it is: the model is called, operator by operator. The reference of every other backend.

`eager:graphs` is the same program, whose timed steps replay forward and backward as CUDA graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from perfkit.backends import parallel
from perfkit.backends.interface import AutogradProgram, Backend
from perfkit.errors import torch_installed
from perfkit.run_folder import Settings
from perfkit.workloads.choices import not_one_of

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.interface import Workload

NO_TORCH = "PyTorch is not installed: pip install 'perfkit[run]'."


class _Graphs(AutogradProgram):
    """Eager's program; on a GPU it replays its steps, and its passes where it generates tokens."""

    replays = replays_passes = True


class Eager(Backend):
    """Calls the model. Modules and their hooks stay, so that ranges by module are possible."""

    name = "eager"
    summary = "PyTorch operator by operator, uncompiled: the reference"
    program: ClassVar[type[AutogradProgram]] = AutogradProgram

    def variant(self, text: str) -> Backend:
        """`eager:graphs`: steps replayed as CUDA graphs, as a backend next to eager. Raises `UsageError`."""
        if text != "graphs":
            raise not_one_of("eager:VARIANT", text, ("graphs",))
        made: type[Eager] = type("Eager", (Eager,), {"name": "eager-graphs", "program": _Graphs})
        return made()

    def unavailable(self, settings: Settings | None = None) -> str | None:
        """Return why PyTorch, or CUDA graphs, cannot run here, or None."""
        if not torch_installed():
            return NO_TORCH
        if settings is None or self.program is AutogradProgram:
            return None
        if not settings.device.startswith("cuda"):
            return "CUDA graphs need a GPU: choose --device cuda."
        if settings.in_group:
            return "Steps of several ranks are not replayed as CUDA graphs."
        return "--cuda-graphs none is given: leave it out." if settings.cuda_graphs == "none" else None

    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> AutogradProgram:
        """Make the program of the model as it is."""
        made = parallel.begin(workload, model, settings)
        return self.program(workload, model, made.call, made.optimizer, keeps_modules=True, parallel=made)
