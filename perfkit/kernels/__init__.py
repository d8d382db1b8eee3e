"""The kernel engine: finds the families in `kernels/`, builds, checks and registers their operations with PyTorch.

This module and the catalog need neither torch nor a compiler; loading, running and checking need both.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from perfkit.errors import Unavailable, torch_installed
from perfkit.kernels.cuda.dependent_launch import overlapping
from perfkit.kernels.declare import Family, Gradient, Implementation, Operation, added_to, versions
from perfkit.kernels.families import catalog, cost_model, find
from perfkit.kernels.languages import device_unavailable
from perfkit.kernels.selection import use_version
from perfkit.kernels.shapes import rows_and_columns

if TYPE_CHECKING:
    from perfkit.kernels.bound import bind
    from perfkit.kernels.checking import check
    from perfkit.kernels.register import direct, load

__all__ = [
    "Family", "Gradient", "Implementation", "Operation",
    "added_to", "bind", "catalog", "check", "cost_model", "direct", "find", "load",
    "overlapping", "rows_and_columns", "unavailable", "use_version", "versions",
]  # fmt: skip

_NEED_TORCH = {"bind": "bound", "check": "checking", "direct": "register", "load": "register"}  # name → its module
_NO_TORCH = "PyTorch is not installed, and the kernels are operators of PyTorch."
_GET_TORCH = "Install it: pip install 'perfkit[run]'."


def unavailable(device: str = "cpu") -> str | None:
    """One sentence why no kernel of the catalog can run on `device` ("cpu", "cuda", "cuda:0"), or None."""
    if not torch_installed():
        return f"{_NO_TORCH} {_GET_TORCH}"
    return device_unavailable(catalog(), device.split(":")[0])


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for. Raises `Unavailable` without torch."""
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not torch_installed():
        raise Unavailable(_NO_TORCH, _GET_TORCH)
    return getattr(importlib.import_module(f"{__name__}.{_NEED_TORCH[name]}"), name)
