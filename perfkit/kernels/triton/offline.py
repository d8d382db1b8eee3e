"""Compile an implementation by Triton for any NVIDIA architecture, without a GPU.

A launch function is called on tensors without memory; its kernels are compiled, recorded and not run.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.content import load_content_module
from perfkit.errors import PerfkitError, RunFailed, Unavailable
from perfkit.kernels.cuda.resources import Resources, read_resources
from perfkit.kernels.declare import Implementation, Operation
from perfkit.kernels.triton.availability import installed, interpreted
from perfkit.kernels.triton.binding import ITEM_SIZES

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CompiledTriton:
    """One kernel of a launch. `shared` is the dynamic shared memory of a block in bytes; `capability` 90 is sm_90."""

    name: str
    capability: int
    grid: tuple[int, ...]
    warps: int
    stages: int
    shared: int
    ptx: str
    cubin: bytes

    @cached_property
    def resources(self) -> Resources:
        """Registers, local memory and spills, from the log of Triton's own assembler. Raises `RunFailed`."""
        assembler = _assembler(self.capability)
        arch = f"sm_{self.capability}{'a' if self.capability >= 90 else ''}"
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "kernel.ptx"
            source.write_text(self.ptx)
            command = [assembler, "-v", f"--gpu-name={arch}", str(source), "-o", f"{source}.cubin"]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        found = read_resources(done.stdout + done.stderr)
        if self.name not in found:
            raise RunFailed(f"{assembler} says nothing of {self.name}: {done.stderr[:300]}", "Report it.")
        return found[self.name]


def _assembler(capability: int) -> str:
    import triton

    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    names = ("ptxas-blackwell", "ptxas") if capability >= 100 else ("ptxas",)
    found = next((str(folder / name) for name in names if (folder / name).is_file()), None) or shutil.which("ptxas")
    if found is None:
        raise RunFailed("ptxas is neither in Triton's package nor on the PATH.", "Install the CUDA toolkit.")
    return found


def compiled(
    operation: Operation, implementation: Implementation, dtype: str, arguments: Sequence[Any], capability: int
) -> list[CompiledTriton]:
    """The kernels that a call with these arguments (tensors of any device, numbers) would launch, in their order.

    Raises `Unavailable` without Triton or under its interpreter, `RunFailed` when it does not compile.
    """
    if not installed() or interpreted():
        raise Unavailable("Triton's compiler cannot be used here.", "Install triton, and unset TRITON_INTERPRET.")
    import torch

    without_memory = [a.to("meta") if isinstance(a, torch.Tensor) else a for a in arguments]
    tensors = [a for a in without_memory if isinstance(a, torch.Tensor)]
    launch = getattr(load_content_module("kernels", operation.source_path(implementation)), implementation.symbol)
    allocated = operation.allocate(*without_memory)
    outputs: tuple[Tensor, ...] = (allocated,) if isinstance(allocated, torch.Tensor) else tuple(allocated)
    numbers = implementation.numbers(operation.scalars(*without_memory))
    with _recording(capability) as found:
        try:
            launch(*tensors, *outputs, *numbers, itemsize=ITEM_SIZES[dtype])
        except PerfkitError:
            raise
        except Exception as error:  # Triton's errors of compilation have many classes
            said = "\n".join(str(error).strip().splitlines()[-12:])
            raise RunFailed(
                f"Triton could not compile {implementation.symbol} for sm_{capability}:\n{said}\n"
            ) from error
    return [_described(kernel, grid, capability) for kernel, grid in found]


def _described(kernel: Any, grid: Sequence[int], capability: int) -> CompiledTriton:
    meta, text = kernel.metadata, kernel.asm
    sizes = tuple(int(n) for n in grid)
    return CompiledTriton(
        meta.name, capability, sizes, meta.num_warps, meta.num_stages, meta.shared, text["ptx"], text["cubin"]
    )


class _Target:
    """As much of a driver as the compiler asks for. Kernels are kept by device: the capability is its number here."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


@contextmanager
def _recording(capability: int) -> Iterator[list[tuple[Any, Sequence[int]]]]:
    """Within the block, launching a kernel compiles it for `capability` and appends it with its grid to the list."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    found: list[tuple[Any, Sequence[int]]] = []
    run = JITFunction.run

    def record(self: Any, *arguments: Any, grid: Any, warmup: bool, **meta: Any) -> None:
        kernel = run(self, *arguments, grid=grid, warmup=True, **meta)
        found.append((kernel, grid(meta) if callable(grid) else grid))

    before = getattr(driver, "_active", None)
    driver.set_active(_Target(capability))
    JITFunction.run = record
    try:
        yield found
    finally:
        JITFunction.run = run
        driver._active = before  # not `reset_active`, which looks for a GPU at once
