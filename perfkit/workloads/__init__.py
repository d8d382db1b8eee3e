"""Workloads: the interface that a model file implements, and what loads such files, their data and their weights.

A workload file needs two names: `from perfkit.workloads import Settings, Workload`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Batch, Workload
    from perfkit.workloads.loader import ListedWorkload, find, names
    from perfkit.workloads.settings import resolve_settings

_HOMES = {
    "Batch": "perfkit.workloads.interface",
    "ListedWorkload": "perfkit.workloads.loader",
    "Settings": "perfkit.run_folder",
    "Workload": "perfkit.workloads.interface",
    "find": "perfkit.workloads.loader",
    "names": "perfkit.workloads.loader",
    "resolve_settings": "perfkit.workloads.settings",
}

__all__ = ["Batch", "ListedWorkload", "Settings", "Workload", "find", "names", "resolve_settings"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that importing one module of this package stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
