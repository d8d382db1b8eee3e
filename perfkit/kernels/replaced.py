"""What a family's operations replace: PyTorch's own operators, and the calls that a model makes without them.

`kernels/FAMILY/FAMILY_pytorch.py` declares them, where there are any. Its function `OPERATION(*arguments)` is PyTorch's
own operator: it prepares what lies outside the timed call (statistics that forward kept, a graph) and gives the call.
`naive_OPERATION` is the operation as models write it, where that is another thing: transformers' models round, convert
and concatenate where a fused operator does not. `RESULTS[OPERATION]` names what these calls return, in order, where
that is not the operation's own results: "" for what the operation does not give.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from perfkit.content import load_content_module
from perfkit.kernels.declare import Operation

if TYPE_CHECKING:
    from torch import Tensor

Call = Callable[[], Any]
_ENDING = "_pytorch.py"


def own(operation: Operation) -> Callable[..., Call] | None:
    """PyTorch's own operator for `operation`; None where its reference is that."""
    return getattr(_declared(operation.folder), operation.name, None)


def naive(operation: Operation) -> Callable[..., Call] | None:
    """`operation` as models write it; None where that is PyTorch's own operator."""
    return getattr(_declared(operation.folder), f"naive_{operation.name}", None)


def results(operation: Operation) -> tuple[str, ...]:
    """The names of what `own` and `naive` return, in order."""
    names: dict[str, tuple[str, ...]] = getattr(_declared(operation.folder), "RESULTS", {})
    return names.get(operation.name, operation.signature.results)


def _declared(folder: Path) -> ModuleType | None:
    file = folder / f"{folder.name}{_ENDING}"
    return load_content_module("kernels", file) if file.is_file() else None


def gradients(function: Callable[..., Any], arguments: list[Tensor], dy: Any) -> Call:
    """The backward pass of `function` by autograd, upstream gradients `dy`; its forward pass is not timed."""
    import torch

    leaves = [a.detach().requires_grad_() for a in arguments]
    with torch.enable_grad():
        y = function(*leaves)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)
