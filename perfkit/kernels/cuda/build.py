"""Compile CUDA sources into cubins, once: kept by content, options and compiler, safe among processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perfkit.cache import digest, locked, making
from perfkit.kernels.c.build import INCLUDE, kernel_cache
from perfkit.kernels.cuda import nvrtc
from perfkit.kernels.cuda.resources import Resources, read_resources

# Types of `T`, which a kernel's tensors are of, by precision.
TYPES = {"fp32": "float", "bf16": "bf16"}

HOPPER = "sm_90"

# -lineinfo lets a profiler show the source; the assembler's report is kept next to the cubin.
OPTIONS: tuple[str, ...] = ("-std=c++17", "-lineinfo", "--ptxas-options=-v")


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
    """Return the digest of everything that the module depends on."""
    headers = (part for header in _headers(source).items() for part in header)
    return digest(*OPTIONS, dtype, _target(arch), str(nvrtc.version()), *kernels, source.read_text(), *headers)


def _build(source: Path, dtype: str, arch: str, kernels: Sequence[str], path: Path, facts: Path) -> None:
    done = compiled(source, dtype, arch, kernels)
    taken = read_resources(done.log)
    resources = {e: asdict(taken[symbol]) for e, symbol in done.names.items() if symbol in taken}
    for file, content in (
        (facts, json.dumps({"symbols": dict(done.names), "resources": resources}).encode()),
        (path, done.cubin),
    ):
        with making(file) as temporary:
            temporary.write_bytes(content)
