"""Compile an implementation by Triton for any NVIDIA architecture, without a GPU.

A launch function is called on tensors without memory; its kernels are compiled, recorded and not run.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.content import load_content_module
from perfkit.errors import RunFailed, Unavailable
from perfkit.kernels.cuda.resources import Resources, read_resources
from perfkit.kernels.declare import Implementation, Operation
from perfkit.kernels.triton.availability import installed, interpreted
from perfkit.kernels.triton.binding import ITEM_SIZES

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Compiled:
    """One kernel of a launch. `shared` is the dynamic shared memory of a block in bytes; `capability` 90 is sm_90."""

    name: str
    capability: int
    warps: int
    shared: int
    ptx: str
    cubin: bytes

    @cached_property
    def resources(self) -> Resources:
        """Registers, local memory and spills, from the log of Triton's own assembler. Raises `RunFailed`."""
        from triton import knobs

        blackwell = self.capability >= 100 and hasattr(knobs.nvidia, "ptxas_blackwell")
        assembler = (knobs.nvidia.ptxas_blackwell if blackwell else knobs.nvidia.ptxas).path
        suffix = "a" if self.capability >= 90 else ""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "kernel.ptx"
            source.write_text(self.ptx)
            command = [
                assembler,
                "-v",
                f"--gpu-name=sm_{self.capability}{suffix}",
                str(source),
                "-o",
                f"{source}.cubin",
            ]
            done = subprocess.run(command, capture_output=True, text=True)
        found = read_resources(done.stdout + done.stderr)
        if self.name not in found:
            raise RunFailed(f"{assembler} says nothing of {self.name}: {done.stderr[:300]}", "Report it.")
        return found[self.name]


def compiled(
    operation: Operation, implementation: Implementation, dtype: str, arguments: Sequence[Any], capability: int
) -> list[Compiled]:
    """The kernels that a call with these arguments (tensors of any device, numbers) would launch, in their order.

    Raises `Unavailable` without Triton or under its interpreter.
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
        launch(*tensors, *outputs, *numbers, itemsize=ITEM_SIZES[dtype])
    return [
        Compiled(k.metadata.name, capability, k.metadata.num_warps, k.metadata.shared, k.asm["ptx"], k.asm["cubin"])
        for k in found
    ]


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
def _recording(capability: int) -> Iterator[list[Any]]:
    """Within the block, launching a kernel compiles it for `capability` and appends it to the list."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    found: list[Any] = []
    run = JITFunction.run

    def record(self: Any, *arguments: Any, grid: Any, warmup: bool, **meta: Any) -> None:
        found.append(run(self, *arguments, grid=grid, warmup=True, **meta))

    before = driver._active  # None until something was launched, and without a GPU there is nothing to go back to
    driver.set_active(_Target(capability))
    JITFunction.run = record
    try:
        yield found
    finally:
        JITFunction.run = run
        driver.set_active(before)
