"""Bind a Triton source's launch functions to the catalog's operations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfkit.content import load_content_module
from perfkit.errors import RunFailed, Unavailable
from perfkit.kernels.declare import Implementation, Operation
from perfkit.kernels.triton.availability import interpreted, unavailable
from perfkit.kernels.triton.launch import Parameters, TritonLaunch

if TYPE_CHECKING:
    from torch import Tensor

ITEM_SIZES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8}


class BoundTritonKernel:
    """A launch function for one precision; call it with tensors (inputs, then outputs) and scalars."""

    def __init__(self, operation: Operation, launch: TritonLaunch, dtype: str) -> None:
        self.operation = operation
        self.launch = launch
        self.dtype = dtype
        self._itemsize = ITEM_SIZES[dtype]

    @property
    def sweep(self) -> list[Parameters]:
        """Every combination of meta-parameters worth trying; `using` takes one."""
        return self.launch.variants()

    def parameters(self, scalars: Sequence[int | float]) -> Parameters:
        """The meta-parameters that a call with these scalars uses."""
        return self.launch.parameters(scalars, self._itemsize)

    def using(self, **parameters: int) -> BoundTritonKernel:
        """Return the kernel with some meta-parameters given. Raises `ValueError` for an unknown one."""
        return BoundTritonKernel(self.operation, self.launch.using(**parameters), self.dtype)

    def __call__(self, tensors: Sequence[Tensor], scalars: Sequence[int | float]) -> None:
        """Launch on the current stream of the tensors' GPU. Raises `RunFailed` when Triton cannot compile or launch."""
        first = tensors[0]
        outputs = tensors[len(tensors) - len(self.operation.signature.outputs) :]
        if outputs and all(output.numel() == 0 for output in outputs):
            return  # nothing to write, and no block has a size of 0
        try:
            if first.is_cuda:
                import torch

                with torch.cuda.device(first.device):  # Triton launches on the current device
                    self.launch(*tensors, *scalars, itemsize=self._itemsize)
            else:
                self.launch(*tensors, *scalars, itemsize=self._itemsize)
        except Exception as error:
            if not _is_tritons(error):
                raise
            raise RunFailed(
                f"Triton could not run {self.operation.qualified_name} in {self.dtype}: {_summary(error)}",
                "Correct the source, or try other meta-parameters.",
            ) from error


def launcher(operation: Operation, implementation: Implementation, dtype: str) -> BoundTritonKernel:
    """Load the source and bind its function. Kernels compile at their first launch, into Triton's own cache.

    Raises `Unavailable` when Triton cannot run here, `InputError` when the source does not load, `RunFailed` when it
    has no launch function of the name.
    """
    _need_triton()
    source = operation.source_path(implementation)
    found: Any = getattr(load_content_module("kernels", source), implementation.symbol, None)
    if not isinstance(found, TritonLaunch):
        raise RunFailed(
            f"{source} has no function called {implementation.symbol} that is marked with @launch.",
            "Correct its symbol in the family's Python file.",
        )
    return BoundTritonKernel(operation, found, dtype)


def _need_triton() -> None:
    reason = unavailable()
    if interpreted():
        reason = _interpreter_unavailable()
    if reason:
        raise Unavailable(reason)


def _interpreter_unavailable() -> str | None:
    """Why the interpreter cannot run, or None: Triton's own functions must have been read under it."""
    if "triton" not in sys.modules:
        return None
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    if isinstance(tl.sum, InterpretedFunction):
        return None
    return "TRITON_INTERPRET was set after Triton was imported. Set it before the process starts."


def _summary(error: Exception) -> str:
    """The place that the compiler names in its first line and what it says in its last, the source between left out."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
    return text if text.endswith(".") else f"{text}."


def _is_tritons(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == "triton"
