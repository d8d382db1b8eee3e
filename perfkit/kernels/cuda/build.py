"""Compile CUDA sources into cubins, once: kept by content, options and compiler, safe among processes."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perfkit.cache import locked
from perfkit.errors import RunFailed
from perfkit.kernels.c.build import INCLUDE, kernel_cache
from perfkit.kernels.cuda import nvrtc
from perfkit.kernels.cuda.resources import Resources, read_resources

# Types of `T`, which a kernel's tensors are of, by precision.
TYPES = {"fp32": "float", "bf16": "bf16"}

HOPPER = "sm_90"

# -lineinfo lets a profiler show the source; the assembler's report is kept next to the cubin.
OPTIONS = ("-std=c++17", "-lineinfo", "--ptxas-options=-v")


@dataclass(frozen=True)
class Cubin:
    """A compiled module: symbols and resources by name expression, as the host function wrote it (`f<T, 8>`)."""

    path: Path
    symbols: Mapping[str, str]
    resources: Mapping[str, Resources]


def cubin(source: Path, dtype: str, arch: str, kernels: Sequence[str]) -> Cubin:
    """The module of `kernels` of `source` for `dtype` and `arch` ("sm_90"), compiled now unless the cache has it.

    Raises `RunFailed` with the compiler's log, or when the cache cannot be written.
    """
    wanted = sorted(set(kernels))
    stem = kernel_cache() / f"{source.stem}-{dtype}-{arch}-{_digest(source, dtype, arch, wanted)}"
    path, facts = stem.with_suffix(".cubin"), stem.with_suffix(".json")
    if not path.is_file() or not facts.is_file():
        with locked(path):
            if not path.is_file() or not facts.is_file():
                _build(source, dtype, arch, wanted, path, facts)
    read = json.loads(facts.read_text())
    resources = {name: Resources(**fields) for name, fields in read["resources"].items()}
    return Cubin(path, read["symbols"], resources)


def compiled(source: Path, dtype: str, arch: str, kernels: Sequence[str]) -> nvrtc.CompiledCuda:
    """Compile `kernels` of `source`, with T as the type of `dtype`; names are as given."""
    prefix = f"using T = {TYPES[dtype]};\n"
    text = source.read_text() + "\n" + prefix  # after the includes, which define bf16; used by name expressions alone
    options = [*OPTIONS, _target(arch)]
    return nvrtc.compile_source(text, str(source), _headers(source), options, kernels)


def _target(arch: str) -> str:
    """The option for an architecture, with what it alone has where kernels use that."""
    return f"-arch={arch}{'a' if arch == HOPPER else ''}"


def _headers(source: Path) -> dict[str, str]:
    """The texts of `<perfkit/….cuh>` and of the headers next to the source, by the name to include them by."""
    ours = {str(file.relative_to(INCLUDE)): file.read_text() for file in sorted(INCLUDE.rglob("*.cuh"))}
    return ours | {file.name: file.read_text() for file in sorted(source.parent.glob("*.cuh"))}


def _digest(source: Path, dtype: str, arch: str, kernels: Sequence[str]) -> str:
    """Everything that the module depends on, in 20 hexadecimal digits."""
    digest = hashlib.sha256()
    for text in (*OPTIONS, dtype, _target(arch), str(nvrtc.version()), *kernels, source.read_text()):
        digest.update(text.encode() + b"\0")
    for name, text in _headers(source).items():
        digest.update(name.encode() + b"\0" + text.encode() + b"\0")
    return digest.hexdigest()[:20]


def _build(source: Path, dtype: str, arch: str, kernels: Sequence[str], path: Path, facts: Path) -> None:
    done = compiled(source, dtype, arch, kernels)
    taken = read_resources(done.log)
    resources = {e: asdict(taken[symbol]) for e, symbol in done.names.items() if symbol in taken}
    try:
        _write(facts, json.dumps({"symbols": dict(done.names), "resources": resources}).encode())
        _write(path, done.cubin)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunFailed(
            f"The kernels cannot be written to {kernel_cache()}: {reason}.", "Set PERFKIT_CACHE elsewhere."
        ) from error


def _write(path: Path, content: bytes) -> None:
    """Write under a name of our own, then rename: another process sees no file or a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
