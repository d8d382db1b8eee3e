"""The backends, found by looking into this folder.

A file or a package here that defines a subclass of `Backend` holds a backend; the others are helpers. A user's own file
serves in the same way: `get("./my_backend.py")` (docs/writing-a-backend.md). Looking for backends imports no torch.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from perfkit.backends.interface import AutogradProgram, Backend, Program
from perfkit.errors import InputError
from perfkit.workloads.choices import unknown

__all__ = ["AutogradProgram", "Backend", "Program", "available", "get", "names"]

REFERENCE = "eager"  # every other backend is compared with it, so it is listed first


def names() -> list[str]:
    """The names of the built-in backends, the reference first."""
    return list(_built_in())


def get(name: str) -> Backend:
    """The backend called `name`, a variant of one ("compile:reduce-overhead"), or that of a Python file's path `name`.

    Raises `UsageError` for an unknown name (it names the nearest one and all), `InputError` for a file that is
    missing, fails to load, or does not define exactly one backend.
    """
    if name in _built_in():
        return _built_in()[name]()
    base, _, variant = name.partition(":")
    if variant and base in _built_in():
        return _built_in()[base]().variant(variant)
    if name.endswith(".py") or "/" in name or os.sep in name:
        return _from_file(Path(name).expanduser())
    raise unknown("backend", name, names())


def available() -> list[tuple[str, str, str | None]]:
    """Name, summary, and why it cannot run here (None when it can), of each built-in backend."""
    return [(name, backend.summary, backend().unavailable()) for name, backend in _built_in().items()]


@functools.cache
def _built_in() -> dict[str, type[Backend]]:
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = [backend for module in modules for backend in _defined_in(module)]
    return {backend.name: backend for backend in sorted(found, key=lambda b: (b.name != REFERENCE, b.name))}


def _defined_in(module: ModuleType) -> list[type[Backend]]:
    """The concrete backends that `module` itself defines, or hands on from its own parts."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Backend)
        and f"{value.__module__}.".startswith(f"{module.__name__}.")
        and not inspect.isabstract(value)
    ]


def _from_file(path: Path) -> Backend:
    if not path.is_file():
        raise InputError(f"There is no file {path}.", "Give the path of a Python file that defines a backend.")
    found = _defined_in(_loaded(path.resolve()))
    if len(found) != 1:
        how_many = "defines no backend" if not found else f"defines {len(found)} backends"
        raise InputError(f"{path} {how_many}.", "docs/writing-a-backend.md shows a file with one.")
    return found[0]()


def _loaded(path: Path) -> ModuleType:
    """The module of a file, under a name of its own that depends on its path."""
    name = f"perfkit_backend_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"{path} cannot be loaded: {type(error).__name__}: {error}.", "Correct the file.") from error
    return module
