"""Exceptions of code outside of perfkit in one sentence: the file and line where it failed, and what it said.

That is code neither in perfkit nor in Python nor among the installed packages; the content of perfkit
(workloads, kernels) counts as such. Where none of it was running, the innermost installed package is named, but
not PyTorch and the compilers, in which every failure of a model ends.
"""

from __future__ import annotations

import functools
import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")
_ENGINES = ("torch", "thunder", "triton", "numpy", "functorch")
_LONGEST = 300  # characters of a message
_IN_TEXT = re.compile(r'File "([^"<>\n]+)", line (\d+), in (\S+)')  # as a compiler repeats a traceback in its message


def sentence(error: BaseException) -> str:
    """The place, where it is known, and the exception's first line: "my.py, line 3, in forward: ValueError: …"."""
    first = str(error).strip().split("\n", 1)[0][:_LONGEST]
    said = f"{type(error).__name__}: {first}" if first else type(error).__name__
    found = place(error)
    return f"{found}: {said}" if found else said


def place(error: BaseException) -> str:
    """ "FILE, line N, in FUNCTION" of the code that `error` came out of; "" where it is unknown."""
    frames = list(_frames(error))
    own = [frame for frame in frames if _somebodys(frame[0])]
    chosen = own or [frame for frame in frames if _package(frame[0]) not in ("", *_ENGINES)]
    if not chosen:
        return ""
    file, line, function = chosen[-1]
    within = "" if function == "<module>" else f", in {function}"
    return f"{_shown(file)}, line {line}{within}"


def _frames(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """File, line and function of each frame, outermost first; then those that the message itself repeats."""
    for frame in traceback.extract_tb(error.__traceback__):
        yield frame.filename, frame.lineno or 0, frame.name
    for file, line, function in _IN_TEXT.findall(str(error)):
        yield file, int(line), function


@functools.cache
def _somebodys(file: str) -> bool:
    path = Path(file)
    if file.startswith("<") or _package(file) or not path.is_file():
        return False
    perfkit = Path(__file__).resolve().parent
    path = path.resolve()
    if path.is_relative_to(perfkit):
        return path.is_relative_to(perfkit / "content") and path.parent != perfkit / "content"
    return not any(path.is_relative_to(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib"))


def _package(file: str) -> str:
    """The name of the installed package that `file` belongs to; "" for none."""
    parts = Path(file).parts
    at = max((len(parts) - 1 - parts[::-1].index(name) for name in _INSTALLED if name in parts), default=-1)
    return Path(parts[at + 1]).stem if 0 <= at < len(parts) - 1 else ""


def _shown(file: str) -> str:
    """The path below the current folder where it lies there, that inside its package where it is installed."""
    path = Path(file)
    for name in _INSTALLED if _package(file) else ():
        if name in path.parts:
            return file.rpartition(f"{name}/")[2]
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
