"""Content: the kernels, workloads and report templates that the engine runs, and a user's own files of the same kind.

Content is found by looking into a folder and loaded by path, never imported by name. In a checkout it is next to the
engine (`kernels/`, `workloads/`, `reports/`); a wheel carries it inside this package. Setting `__path__` to whichever
of the two holds it makes `perfkit.content.workloads.gpt2` a real module with real parents in both, so that pickling,
spawned processes, torch.compile and thunder.jit find a content module again by its name.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args

from perfkit import faults
from perfkit.errors import InputError, PerfkitError

Kind = Literal["kernels", "workloads", "reports"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE if (_HERE / "workloads").is_dir() else _HERE.parents[1]
_LOADING = threading.RLock()  # a content file may load another

__path__ = [str(_ROOT)]

__all__ = ["KINDS", "Kind", "content_dir", "load_content_module"]


def content_dir(kind: Kind) -> Path:
    """The folder of the built-in content of one kind. Raises `InputError` when this installation lacks it."""
    folder = _ROOT / kind
    if not folder.is_dir():
        raise InputError(f"This installation of perfkit has no {kind} folder.", "Install perfkit again.")
    return folder


def load_content_module(kind: Kind, path: str | Path) -> ModuleType:
    """Load a content file, built-in or a user's own, under a stable module name; each file once a process.

    A built-in file is named by its place (`perfkit.content.kernels.gelu.gelu`). A user's file is named after its stem
    and a digest of its path, and may import its neighbours: its folder is appended to `sys.path`. Another process finds
    built-in modules by name, but must be handed the path of a user's file and load it itself.

    Raises `InputError` when the file is missing, is not a Python file, or fails while it is loaded.
    """
    file = Path(path).expanduser().resolve()
    _check_python_file(file, Path(path))
    name = _module_name(kind, file)
    with _LOADING:  # while a file runs, its half-made module is in sys.modules already
        if name in sys.modules:
            return sys.modules[name]
        parent = importlib.import_module(name.rpartition(".")[0])
        if not _is_built_in(kind, file) and str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
        module = _execute(name, file)
        setattr(parent, name.rpartition(".")[2], module)
        return module


def _check_python_file(file: Path, as_given: Path) -> None:
    if not file.exists():
        raise InputError(f"There is no file {as_given}.", "Relative paths start at the current folder.")
    if not file.is_file() or file.suffix != ".py":
        raise InputError(f"{as_given} is not a Python file.", "Give the path of a .py file.")


def _is_built_in(kind: Kind, file: Path) -> bool:
    return file.is_relative_to((_ROOT / kind).resolve())


def _module_name(kind: Kind, file: Path) -> str:
    """The dotted name of a content file: by its place when built-in, by its stem and a digest of its path otherwise."""
    if _is_built_in(kind, file):
        return ".".join(["perfkit.content", kind, *file.relative_to((_ROOT / kind).resolve()).with_suffix("").parts])
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    stem = re.sub(r"\W", "_", file.stem)
    return f"perfkit.content.{kind}.{stem}_{digest}"


def _execute(name: str, file: Path) -> ModuleType:
    """Run a file as the module `name`, registered in `sys.modules` meanwhile and afterwards, but not when it fails."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} cannot be loaded as Python.", "Give the path of a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, PerfkitError) or not isinstance(error, Exception | SystemExit):
            raise
        raise _explain(error, file) from error
    return module


def _explain(error: BaseException, file: Path) -> InputError:
    """Say in one sentence why a content file failed while it was loaded, and where."""
    if isinstance(error, SyntaxError) and error.filename:
        return InputError(f"{error.filename}, line {error.lineno}, is not valid Python: {error.msg}.", "Correct it.")
    place = f"{faults.place(error)}," if faults.place(error) else str(file)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "Install the missing package." if isinstance(error, ModuleNotFoundError) else "Correct the file."
    return InputError(f"{place} failed while it was loaded: {what}.", hint)
