"""PyTorch as it is: the model is called, operator by operator. The reference of every other backend."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from perfkit.backends import parallel
from perfkit.backends.interface import AutogradProgram, Backend
from perfkit.run_folder import Settings

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.interface import Workload

NO_TORCH = "PyTorch is not installed: pip install 'perfkit[run]'."


def torch_installed() -> bool:
    """True where torch can be imported; it is not imported for this."""
    return importlib.util.find_spec("torch") is not None


class Eager(Backend):
    """Calls the model. Modules and their hooks stay, so that ranges by module are possible."""

    name = "eager"
    summary = "PyTorch operator by operator, uncompiled: the reference"

    def unavailable(self, settings: Settings | None = None) -> str | None:
        """Return why PyTorch cannot run here, or None."""
        return None if torch_installed() else NO_TORCH

    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> AutogradProgram:
        """Make the program of the model as it is."""
        made = parallel.begin(workload, model, settings)
        return AutogradProgram(workload, model, made.call, made.optimizer, keeps_modules=True, parallel=made)
