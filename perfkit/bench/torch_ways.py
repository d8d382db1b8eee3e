"""Ways that PyTorch computes by itself: an expression run as it is, or compiled."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from perfkit.bench.benchmark import Outputs, Prepared, Way
from perfkit.errors import Unavailable
from perfkit.kernels.checking import as_tuple

# Results that PyTorch writes between two operators are rounded to the working precision; a kernel that computes the
# whole in fp32 is held to the operation's tolerance, PyTorch's ways to this many times it.
ROUNDING = 4.0


def named(names: Sequence[str], result: Any) -> Outputs:
    """The tensors of a result by name; those called "" left out."""
    return {name: tensor for name, tensor in zip(names, as_tuple(result), strict=True) if name}


def torch_way(
    name: str, function: Callable[..., Any], results: Sequence[str], text: str, optional: bool = False
) -> Way:
    """`function` of the arguments as a way; the one called "compile" goes through torch.compile."""

    def prepare(arguments: Sequence[Any], dtype: str) -> list[Prepared]:
        run = compiled(function, arguments) if name == "compile" else function
        return [Prepared(lambda: run(*arguments), lambda: named(results, run(*arguments)))]

    return Way(name, name, text, prepare, optional, ROUNDING)


def compiled(function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any]:
    """`function` compiled for these shapes alone: a compiled one that has met many shapes would run eagerly."""
    if not any(isinstance(a, Tensor) and a.is_cuda for a in arguments):
        compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
        if shutil.which(compiler[0]) is None:
            raise Unavailable(f"torch.compile needs a C++ compiler, and {compiler[0]} is missing here.", "Set CXX.")
    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=True)
    made(*arguments)
    return made
