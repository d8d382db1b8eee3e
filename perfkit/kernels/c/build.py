"""Build C sources into shared libraries, once: kept by content, compiler and processor, safe among processes."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path

from perfkit.cache import cache_dir, digest, locked, making
from perfkit.errors import RunFailed
from perfkit.hardware.compiler import Compiler
from perfkit.kernels.c import toolchain

INCLUDE = Path(__file__).resolve().parents[1] / "include"

# No -ffast-math: it would break masking with -inf, and linking with it switches denormals off in the whole process.
# The three options after -O3 are the harmless parts of it.
OPTIONS = ("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared")
# Vector types wider than the processor's registers are passed between inlined functions only: no ABI is at stake.
QUIET = ("-Wno-psabi", "-Wno-unknown-pragmas")
DEFINES = {"fp32": (), "bf16": ("-DPERFKIT_BF16",)}
_TIMEOUT_S = 300


def kernel_cache() -> Path:
    """Return the folder of built libraries."""
    return cache_dir() / "kernels"


def library(source: Path, dtype: str) -> Path:
    """The shared library of `source` for `dtype` ("fp32" or "bf16"), built now unless the cache has it.

    Raises `Unavailable` without a compiler, `RunFailed` with the compiler's first lines when the source does not
    compile, or when the cache cannot be written.
    """
    compiler, isa = toolchain.compiler(), toolchain.isa()
    path = kernel_cache() / f"{source.stem}-{dtype}-{_digest(source, dtype, compiler, isa)}.so"
    if not path.is_file():
        with locked(path):
            if not path.is_file():
                _build(source, dtype, compiler, isa, path)
    return path


def _digest(source: Path, dtype: str, compiler: Compiler, isa: str) -> str:
    """Return the digest of everything that the library depends on."""
    made_by = *OPTIONS, *DEFINES[dtype], isa, *compiler.command, compiler.version, toolchain.cpu_identity()
    files = source, *sorted(source.parent.glob("*.h")), *sorted(INCLUDE.rglob("*.h"))
    return digest(*made_by, *(part for file in files for part in (file.name, file.read_bytes())))


def _build(source: Path, dtype: str, compiler: Compiler, isa: str, path: Path) -> None:
    with making(path) as temporary:
        _compile(source, dtype, compiler, isa, temporary)


def _compile(source: Path, dtype: str, compiler: Compiler, isa: str, output: Path) -> None:
    """Compile, with the best options that this compiler takes."""
    first = ""
    for extra in _alternatives(isa):
        options = [*OPTIONS, *QUIET, *DEFINES[dtype], *extra, f"-I{INCLUDE}"]
        messages = _run([*compiler.command, *options, str(source), "-o", str(output), "-lm"])
        if messages is None:
            return
        first = first or messages
        # Options are only worth changing when they are what the compiler complains about.
        if _accepts(compiler, extra):
            break
    lines = "\n".join(first.strip().splitlines()[:12])
    raise RunFailed(f"{compiler.command[0]} could not compile {source}:\n{lines}\n", "Correct the source.")


def _alternatives(isa: str) -> list[list[str]]:
    """Extra options, best first: with OpenMP, then (Apple's clang has none) without."""
    return [[*openmp, *target] for openmp in (["-fopenmp"], []) for target in toolchain.isa_options(isa)]


def _accepts(compiler: Compiler, extra: list[str]) -> bool:
    """Return whether the compiler builds an empty library with these options."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.c"
        empty.write_text("#include <stdint.h>\nint perfkit_empty(void) { return 0; }\n")
        command = [*compiler.command, "-fPIC", "-shared", *extra, str(empty), "-o", str(empty.with_suffix(".so"))]
        return _run(command) is None


def _run(command: list[str]) -> str | None:
    """Run the compiler; None on success, else what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"it did not finish in {_TIMEOUT_S} seconds: {shlex.join(command)}"
    if done.returncode == 0:
        return None
    return done.stderr or done.stdout or f"it ended with {done.returncode}: {shlex.join(command)}"
