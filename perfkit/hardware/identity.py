"""The environment of a measurement: stored with every run, hashed to a fingerprint, compared before results are."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from perfkit.hardware.compiler import find_compiler
from perfkit.hardware.cpu import Cpu, current_clock, read_cpu
from perfkit.hardware.gpu import driver_version, gpu_names, read_gpus
from perfkit.hardware.system import text_of

# Distributions whose versions are kept, by the name that people say.
PACKAGES = {
    "torch": "torch",
    "thunder": "lightning-thunder",
    "triton": "triton",
    "numpy": "numpy",
}

# Facts that must be equal before times are compared: their names in words, and their place in `environment()`.
_MUST_AGREE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("CPU", ("cpu", "model")),
    ("CPU stepping", ("cpu", "stepping")),
    ("usable cores", ("cpu", "usable")),
    ("threads", ("threads", "count")),
    ("thread binding (OMP_PROC_BIND)", ("threads", "OMP_PROC_BIND")),
    ("frequency governor", ("cpu", "governor")),
    ("memory size", ("memory_class",)),
    ("GPUs", ("gpu_names",)),
    ("GPU driver", ("driver",)),
    ("operating system", ("os", "system")),
    ("Python", ("python_minor",)),
    ("torch", ("versions", "torch")),
    ("thunder", ("versions", "thunder")),
    ("triton", ("versions", "triton")),
    ("C compiler", ("compiler",)),
)


def usable_threads() -> int:
    """Threads that a computation uses: torch's setting where torch is loaded, else OMP_NUM_THREADS, else the cores."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else read_cpu().usable


def fingerprint(threads: int | None = None) -> str:
    """Twelve hex digits that agree where measurements are comparable: processor, cores, threads, memory class, GPUs.

    `threads` defaults to `usable_threads()`. Host names, versions and loads do not belong to it.
    """
    return hash_of(read_cpu(), usable_threads() if threads is None else threads, gpu_names(), mkl_switched())


def hash_of(cpu: Cpu, threads: int, gpus: list[str], switched: bool = False) -> str:
    """The fingerprint of a described machine, with MKL `switched` to its code for Intel's processors or not."""
    facts = [
        cpu.model, cpu.stepping, cpu.architecture, cpu.simd, cpu.usable, threads,
        [(c.level, c.size, c.instances) for c in cpu.caches], memory_class(cpu.memory_bytes), sorted(gpus),
        *(["MKL's code for Intel's"] if switched else []),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def mkl_switched() -> bool:
    """Return whether a preloaded library answers MKL's question for an Intel processor, as `slow-blas` advises.

    MKL is part of libraries of torch, whose names are not global: only a library loaded before the program has it here.
    """
    try:
        return hasattr(ctypes.CDLL(None), "mkl_serv_intel_cpu_true")
    except (OSError, TypeError):  # Windows has no global names
        return False


def memory_class(size: int | None) -> str:
    """The power of two GiB that `size` bytes is nearest to, such as "32 GiB": firmware keeps a little of it."""
    return "unknown" if not size else f"{2 ** round(math.log2(max(size, 2**30) / 2**30))} GiB"


def environment() -> dict[str, Any]:
    """Return everything that may affect a measurement as plain data for JSON; unknown values are None."""
    import perfkit

    cpu, gpus = read_cpu(), read_gpus()
    compiler = find_compiler()
    facts = {
        "perfkit": perfkit.__version__,
        "fingerprint": fingerprint(),
        "python": platform.python_version(),
        "python_minor": ".".join(map(str, sys.version_info[:2])),
        "versions": {name: version_of(package) for name, package in PACKAGES.items()},
        "os": {"system": platform.system(), "release": platform.release(), "name": _os_name()},
        "compiler": compiler.version if compiler else None,
        "cpu": {**msgspec.structs.asdict(cpu), "usable": cpu.usable},
        "cpu_clock_hz": current_clock(),
        "memory_class": memory_class(cpu.memory_bytes),
        "threads": {
            "count": usable_threads(),
            **{name: os.environ.get(name, "unset") for name in ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES")},
        },
        "load_average": _load(),
        "virtualization": cpu.virtualization,
        "mkl_switched": mkl_switched(),
        "gpu_queues": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "unset"),
        "gpus": gpus,
        "gpu_names": sorted(gpu.name for gpu in gpus),
        "driver": next((gpu.driver for gpu in gpus if gpu.driver), driver_version()),
    }
    return msgspec.json.decode(msgspec.json.encode(facts))


def comparable(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """The differences between two environments that forbid comparing their times, in words; empty if none does.

    A fact that one of the two lacks (None, or no such key) does not prove a difference.
    """
    differences = []
    for words, path in _MUST_AGREE:
        one, other = _at(a, path), _at(b, path)
        if one != other and one is not None and other is not None:
            differences.append(f"{words}: {_words(one)} and {_words(other)}")
    return differences


def version_of(package: str) -> str | None:
    """Version of an installed distribution, without importing it; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def torch_cuda() -> str | None:
    """Return what the installed torch was built for ("CUDA 12.8"), from its version file; None for a CPU build."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    lines = text_of(Path(spec.origin).with_name("version.py"))
    for name, words in (("cuda", "CUDA"), ("hip", "ROCm")):
        found = re.search(rf"^{name}\b[^=\n]*= *['\"]([^'\"]+)", lines, re.MULTILINE)
        if found:
            return f"{words} {found[1]}"
    return None


def _at(environment: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = environment
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _load() -> list[float] | None:
    try:
        return [round(load, 2) for load in os.getloadavg()]
    except OSError:
        return None


def _os_name() -> str:
    read: Callable[[], dict[str, str]] = platform.freedesktop_os_release
    try:
        return read().get("PRETTY_NAME", platform.platform())
    except OSError:
        return platform.platform()
