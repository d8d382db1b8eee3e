"""Finding a workload: a built-in one by its name, or a user's own file by its path.

The built-in ones are the files of the folder `workloads/`, found by looking into it; a file's stem is the workload's
name. Looking for names reads no file and needs no torch; loading a workload imports its file, which does.
"""

from __future__ import annotations

import ast
import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from perfkit.content import content_dir, load_content_module
from perfkit.errors import InputError, PerfkitError, Unavailable, torch_installed
from perfkit.run_folder import MANIFEST
from perfkit.workloads.choices import unknown
from perfkit.workloads.interface import Workload

_WITHOUT_TORCH = "PyTorch is not installed"
_INSTALL = "Install it: pip install 'perfkit[run]'."


@dataclass(frozen=True)
class ListedWorkload:
    """A workload as `perfkit list` shows it. `reason` says why it cannot be loaded here; "" when it can."""

    name: str
    summary: str
    presets: tuple[str, ...]
    variants: tuple[str, ...]
    path: Path
    reason: str = ""


def find(name_or_path: str) -> Workload:
    """The workload called `name_or_path`, or defined by the file at that path.

    Raises `UsageError` for an unknown name, `InputError` for a file that is missing, cannot be loaded, or does not
    define exactly one workload, and `Unavailable` when torch is missing.
    """
    path = _path_of(name_or_path)
    if not torch_installed():
        raise Unavailable(f"The workload {name_or_path} cannot be loaded: {_WITHOUT_TORCH}.", _INSTALL)
    return _defined_in(load_content_module("workloads", path), path)


def names() -> list[ListedWorkload]:
    """The built-in workloads in the order of their names, those that cannot be loaded with the reason."""
    return [_listing(name, path) for name, path in _built_in().items()]


def source_of(workload: Workload) -> str:
    """Return the argument for `find` to find `workload` again in any process: its name, or the absolute path of its
    file."""
    path = Path(inspect.getfile(type(workload))).resolve()
    return path.stem if path in [p.resolve() for p in _built_in().values()] else str(path)


def _built_in() -> dict[str, Path]:
    folder = content_dir("workloads")
    return {path.stem: path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}


def _path_of(name_or_path: str) -> Path:
    built_in = _built_in()
    if name_or_path in built_in:
        return built_in[name_or_path]
    looks_like_path = name_or_path.endswith(".py") or "/" in name_or_path or os.sep in name_or_path
    path = Path(name_or_path).expanduser()
    if not looks_like_path:
        hint_of_file = path.with_suffix(".py") if name_or_path else path
        error = unknown("workload", name_or_path, built_in)
        if hint_of_file.is_file():
            error.hint += f" To run the file here, give its path: ./{hint_of_file}."
        raise error
    if (path / MANIFEST).is_file():
        raise InputError(
            f"{path} is a run folder, no workload.",
            "`perfkit report` shows it, and `perfkit compare` takes it without --backend: FOLDER or FOLDER:BACKEND.",
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder.", "Give the workload's Python file.")
    return path.resolve()


def _defined_in(module: ModuleType, path: Path) -> Workload:
    """An instance of the one concrete `Workload` that `module` itself defines."""
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Workload) and value.__module__ == module.__name__
    ]
    concrete = [cls for cls in dict.fromkeys(found) if not inspect.isabstract(cls)]
    if not concrete:
        lack = [f"its class {cls.__name__} lacks {' and '.join(sorted(cls.__abstractmethods__))}" for cls in found]
        what = "; ".join(lack) or "it has no subclass of Workload"
        raise InputError(f"{path} defines no workload: {what}.", "docs/writing-a-workload.md shows one.")
    if len(concrete) > 1:
        classes = ", ".join(cls.__name__ for cls in concrete)
        raise InputError(f"{path} defines several workloads: {classes}.", "Leave one in each file.")
    return _complete(concrete[0], path)


def _complete(cls: type[Workload], path: Path) -> Workload:
    """An instance of `cls`, after checking what the interface demands of the class itself."""
    lacking = [name for name in ("name", "summary", "presets") if not getattr(cls, name, None)]
    if lacking:
        raise InputError(f"{path}: the workload {cls.__name__} sets no {' and no '.join(lacking)}.")
    for preset, dimensions in cls.presets.items():
        if "batch_size" not in dimensions:
            raise InputError(f"{path}: the preset {preset} of {cls.__name__} has no batch_size.")
    return cls()


def _listing(name: str, path: Path) -> ListedWorkload:
    if not torch_installed():
        return ListedWorkload(
            name, _docstring_line(path), (), (), path, f"{_WITHOUT_TORCH}: pip install 'perfkit[run]'"
        )
    try:
        workload = _defined_in(load_content_module("workloads", path), path)
    except PerfkitError as error:
        return ListedWorkload(name, _docstring_line(path), (), (), path, error.message)
    return ListedWorkload(name, workload.summary, tuple(workload.presets), tuple(workload.variants), path)


def _docstring_line(path: Path) -> str:
    """The first line of a file's docstring, without running it; "" without one."""
    try:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    except (OSError, SyntaxError, ValueError):
        return ""
    return (text or "").partition("\n")[0]
