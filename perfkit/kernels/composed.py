"""Implementations made of PyTorch's own operators and other kernels of the catalog: the language "torch".

A Python source holds functions that take the input tensors, the output tensors and the operation's scalars, as a kernel
in any language does. They run on every device, and the kernels that they call by `torch.ops.perfkit` are those of the
language that is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfkit.content import load_content_module
from perfkit.errors import RunFailed
from perfkit.kernels.c.binding import BoundCKernel
from perfkit.kernels.declare import Implementation, Operation

if TYPE_CHECKING:
    from torch import Tensor


def launcher(operation: Operation, implementation: Implementation, dtype: str) -> BoundCKernel:
    """The function of the source, for tensors and scalars. Raises `RunFailed` where the source has none of the name."""
    source = operation.source_path(implementation)
    function: Any = getattr(load_content_module("kernels", source), implementation.symbol, None)
    if function is None:
        raise RunFailed(f"{source} has no function called {implementation.symbol}.", "Correct the symbol.")

    def launch(tensors: Sequence[Tensor], scalars: Sequence[int | float]) -> None:
        import torch

        _load()
        with torch.no_grad():  # it writes to outputs, which autograd refuses where it looks on
            function(*tensors, *scalars)

    return launch


@functools.cache
def _load() -> None:
    """Make the catalog's kernels operators, which the functions call; loading binds these functions, so not before."""
    from perfkit.kernels import load

    load()
