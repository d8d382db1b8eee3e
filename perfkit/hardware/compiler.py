"""The machine's C compiler: which it is, and building a small program with it once."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import msgspec

from perfkit.cache import cache_dir, locked, making
from perfkit.errors import RunFailed, Unavailable
from perfkit.hardware.cpu import read_cpu
from perfkit.hardware.system import printed

HOW_TO_GET = "Install one: `apt install gcc`, `dnf install gcc`, or `xcode-select --install`; or set CC."

# OpenMP as gcc and clang take it, and as Apple's clang does when Homebrew's libomp is there.
_OPENMP = (("-fopenmp",), ("-Xpreprocessor", "-fopenmp", "-lomp"))
# Options for this very processor: gcc and clang on x86, clang elsewhere, and without any.
_TUNE = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ("-mcpu=native",), ())


class Compiler(msgspec.Struct, frozen=True):
    """A C compiler: the command that runs it and the first line of what it says about itself."""

    command: tuple[str, ...]
    version: str


def find_compiler(variable: str = "CC", usual: tuple[str, ...] = ("cc", "gcc", "clang")) -> Compiler | None:
    """The compiler that the environment's `variable` names where it is set, else the first of `usual` that runs."""
    return _find(os.environ.get(variable, ""), usual, os.environ.get("PATH", ""))


def build_program(source: Path) -> Path:
    """Compile an OpenMP program for this processor, once: the executable is cached by sources, compiler and processor.

    Headers next to `source` belong to it.

    Raises `Unavailable` without a compiler, `RunFailed` when it cannot compile the source or write to the cache.
    """
    compiler = find_compiler()
    if compiler is None:
        raise Unavailable("There is no C compiler on this machine.", HOW_TO_GET)
    sources = [path.read_text(encoding="utf-8") for path in (source, *sorted(source.parent.glob("*.h")))]
    # The processor belongs to the key because the code is made for it, and a home folder may serve several machines.
    cpu = read_cpu()
    key = _key(*sources, *compiler.command, compiler.version, cpu.model, cpu.stepping or "", *cpu.simd)
    program = cache_dir() / "programs" / f"{source.stem}-{key}"
    if not os.access(program, os.X_OK):
        with locked(program):
            if not os.access(program, os.X_OK):
                with making(program) as temporary:
                    _first_that_compiles(compiler, source, temporary)
    return program


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def has_openmp(compiler: Compiler) -> bool:
    """Return whether `compiler` builds an OpenMP program, tried on a small one."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "openmp.c"
        source.write_text("#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n")
        try:
            _first_that_compiles(compiler, source, Path(folder) / "openmp")
        except RunFailed:
            return False
    return True


@functools.lru_cache(maxsize=8)
def _find(named: str, usual: tuple[str, ...], path: str) -> Compiler | None:
    for command in [tuple(shlex.split(named))] if named else [(name,) for name in usual]:
        version = printed([*command, "--version"]).partition("\n")[0]
        if version:
            return Compiler(command, version)
    return None


def _first_that_compiles(compiler: Compiler, source: Path, program: Path) -> None:
    """Try the best flags first and fall back; the compiler's first complaint goes into the error."""
    complaint = ""
    for openmp in _OPENMP:
        for tune in _TUNE:
            command = [*compiler.command, "-O3", "-std=gnu11", *tune, str(source), "-o", str(program), *openmp, "-lm"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                raise RunFailed(f"{compiler.version} did not finish compiling {source.name} in 120 s.") from None
            if done.returncode == 0:
                return
            complaint = complaint or next((ln for ln in done.stderr.splitlines() if "error" in ln), done.stderr.strip())
    raise RunFailed(f"{compiler.version} could not compile {source.name} with OpenMP: {complaint}.", HOW_TO_GET)
