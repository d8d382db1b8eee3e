"""Importing Thunder, and why it may not be possible. What newer PyTorch lacks of it: `standins`."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from perfkit.backends.eager import NO_TORCH
from perfkit.backends.thunder import standins
from perfkit.cache import cache_dir
from perfkit.errors import Unavailable, torch_installed
from perfkit.run_folder import Settings
from perfkit.workloads.choices import unknown

FIRST_PYTHON_WITHOUT = (3, 14)


def unavailable(settings: Settings | None) -> str | None:
    """One sentence why Thunder cannot run here, or None.

    With `settings` it is imported too, which takes seconds: once for these versions, unless executors are named.
    Raises `UsageError` for an unknown executor in `settings`.
    """
    if not torch_installed():
        return NO_TORCH
    if sys.version_info >= FIRST_PYTHON_WITHOUT:
        found = ".".join(map(str, sys.version_info[:2]))
        return f"lightning-thunder needs a Python before 3.14, and this is {found}: make an environment with 3.13."
    if importlib.util.find_spec("thunder") is None:
        return "lightning-thunder is not installed: pip install 'perfkit[thunder]'."
    if settings is not None:
        try:
            executors(settings.executors) if settings.executors else _import_once()
        except Unavailable as error:
            return error.message
    return None


def _import_once() -> None:
    """Import Thunder, if it never was with these versions. Raises `Unavailable` as `load` does."""
    versions = "-".join(importlib.metadata.version(name) for name in ("torch", "lightning-thunder"))
    known = cache_dir() / "thunder" / f"{versions}-python{sys.version_info[0]}.{sys.version_info[1]}"
    if known.exists():
        return
    load()
    with contextlib.suppress(OSError):  # a cache that cannot be written
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()


def load() -> Any:
    """Import Thunder and return the module. Raises `Unavailable` with one sentence when that fails."""
    thunder, reason = _imported()
    if reason:
        raise Unavailable(reason)
    return thunder


@functools.cache
def _imported() -> tuple[Any, str]:
    """Thunder, or why its import failed. It is tried once: a second try meets what the first left, not the cause."""
    import torch

    try:
        with warnings.catch_warnings(), standins.importing():
            warnings.simplefilter("ignore")  # it mentions each optional package that is missing
            import thunder
    except Exception as error:  # an import can fail in any way: a missing symbol, another torch, a broken package
        said = f"{type(error).__name__}: {error}"
        return None, f"lightning-thunder cannot be imported with torch {torch.__version__}: {said}."
    return thunder, ""


def executors(names: Sequence[str]) -> list[Any]:
    """Thunder's executors of these names. Raises `UsageError` for one that Thunder does not have, naming all it has."""
    thunder = load()
    found = []
    for name in names:
        executor = thunder.get_executor(name)
        if executor is None:
            raise unknown("Thunder executor", name, sorted(str(e.name) for e in thunder.get_all_executors()))
        found.append(executor)
    return found
