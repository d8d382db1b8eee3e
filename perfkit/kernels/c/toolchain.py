"""The C compiler of this machine, and the instruction set that it compiles for."""

from __future__ import annotations

import functools
import os
import platform

from perfkit.errors import Unavailable, UsageError
from perfkit.hardware.compiler import HOW_TO_GET, Compiler, find_compiler
from perfkit.hardware.cpu import first_cpu, read_cpu
from perfkit.hardware.system import ROOT

# Features that each instruction set needs (names as in /proc/cpuinfo); the compiler's options have the same names.
ISA_FEATURES = {
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"),
    "avx2": ("avx2", "fma"),
    "plain": (),
}


def unavailable() -> str | None:
    """One sentence why C kernels cannot be built here, or None."""
    try:
        compiler()
    except Unavailable as error:
        return str(error)
    return None


def compiler() -> Compiler:
    """The compiler that $CC names, else cc, gcc or clang. Raises `Unavailable` when none of them starts."""
    found = find_compiler()
    if found is not None:
        return found
    named = os.environ.get("CC")
    if named:
        raise Unavailable(f"CC names {named}, which does not start on this machine.", "Correct or unset CC.")
    raise Unavailable("No C compiler was found on this machine (looked for cc, gcc and clang).", HOW_TO_GET)


def isa() -> str:
    """The instruction set asked for by PERFKIT_KERNEL_ISA: native (the default), avx512, avx2 or plain.

    Raises `UsageError` for another word, `Unavailable` when this processor lacks the set.
    """
    name = os.environ.get("PERFKIT_KERNEL_ISA", "") or "native"
    if name == "native":
        return name
    if name not in ISA_FEATURES:
        raise UsageError(f"PERFKIT_KERNEL_ISA is {name!r}.", f"Set it to native, {', '.join(ISA_FEATURES)}, or not.")
    if not set(ISA_FEATURES[name]) <= set(_cpu_features().split()):
        raise Unavailable(f"This processor lacks the instruction set {name}.", "Unset PERFKIT_KERNEL_ISA.")
    return name


def isa_options(name: str) -> list[list[str]]:
    """The compiler options for an instruction set: alternatives, best first; a compiler may refuse one."""
    if name == "native":
        return [["-march=native"], ["-mcpu=native"], []]
    return [[f"-m{feature}" for feature in ISA_FEATURES[name]]]


def cpu_identity() -> str:
    """Text that identifies this processor: a home folder may be shared by several machines."""
    cpu = read_cpu()
    return "\n".join([platform.machine(), cpu.model, cpu.stepping or "", _cpu_features()])


@functools.cache
def _cpu_features() -> str:
    """The features of the first processor in /proc/cpuinfo, separated by spaces; "" without such a file."""
    facts = first_cpu(ROOT / "proc/cpuinfo")
    return facts.get("flags") or facts.get("Features") or ""  # x86 or Arm
