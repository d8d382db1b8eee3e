"""C++ sources compiled against the headers of the installed PyTorch: built once, kept by content and version."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from perfkit.cache import digest, locked
from perfkit.hardware.compiler import Compiler, find_compiler
from perfkit.kernels.c import build

_STANDARDS = ("-std=c++20", "-std=c++17")  # PyTorch's headers want the one or the other
_TIMEOUT_S = 180


def load(source: Path) -> Any:
    """The library of `source`, built now if need be; None where it cannot be built or loaded."""
    path = _built(source)
    if path is None:
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None


def _built(source: Path) -> Path | None:
    """The library in the cache, built now if need be; None where there is nothing to build it with."""
    root = Path(torch.__file__).parent
    compiler = find_compiler("CXX", ("c++", "g++", "clang++"))
    if compiler is None or not (root / "include/ATen/core/dispatch/Dispatcher.h").is_file():
        return None
    built_for = torch.__version__, str(torch.version.git_version), *compiler.command, compiler.version
    path = build.kernel_cache() / f"{source.stem}-{digest(source.read_bytes(), *built_for)}.so"
    with locked(path):
        return path if path.is_file() or _compile(source, compiler, root, path) else None


def _compile(source: Path, compiler: Compiler, root: Path, path: Path) -> bool:
    """Compile `source` against PyTorch at `root` into `path`, under another name first; return whether it could."""
    options = ["-O2", "-fPIC", "-shared", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    options.append(f"-I{root / 'include'}")
    libraries = [f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{source.stem}-", dir=path.parent) as folder:
            made = Path(folder) / path.name
            for standard in _STANDARDS:
                command = [*compiler.command, standard, *options, str(source), "-o", str(made)]
                done = subprocess.run([*command, *libraries], capture_output=True, timeout=_TIMEOUT_S)
                if done.returncode == 0:
                    made.replace(path)
                    return True
    except (OSError, subprocess.SubprocessError):
        return False
    return False
