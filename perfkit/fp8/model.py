"""The model of a run in fp8: which of its layers multiply fp8, and what the report says of them."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from perfkit.errors import UsageError

if TYPE_CHECKING:
    import torch

EMULATED = (
    "fp8 is emulated on this CPU: operands are rounded to fp8 and multiplied in fp32. Results are those of fp8; times "
    "say nothing of a GPU's."
)


def chosen(model: torch.nn.Module, layers: str) -> tuple[list[str], list[str]]:
    """Names of the linear layers inside of the repeated `layers` (a pattern as `transformer.h.*`): of those that
    multiply fp8, and of those that cannot for their widths. Subclasses of `nn.Linear` do something of their own."""
    import torch

    from perfkit.fp8.linear import MULTIPLE, Linear

    inside = [
        (name, module)
        for name, module in model.named_modules()
        if type(module) in (torch.nn.Linear, Linear) and layers and fnmatch.fnmatch(name, layers)
    ]
    fits = {name for name, m in inside if m.in_features % MULTIPLE == m.out_features % MULTIPLE == 0}
    return [name for name, _ in inside if name in fits], [name for name, _ in inside if name not in fits]


def is_fp8(module: torch.nn.Module) -> bool:
    """Return whether a module is a linear layer that multiplies fp8."""
    from perfkit.fp8.linear import Linear

    return isinstance(module, Linear)


def convert(model: torch.nn.Module, layers: str) -> None:
    """Have linear layers inside of the repeated `layers` multiply fp8, in place: names, parameters and hooks stay.

    Raises `UsageError` where there are none.
    """
    from perfkit.fp8.linear import Linear

    names, _ = chosen(model, layers)
    if not names:
        raise UsageError(
            "--dtype fp8 needs repeated layers with linear layers of widths that divide by 16; this model names none.",
            'Choose gpt2 or llama, give your workload `layers = "path.of.the.list.*"`, or use --dtype bf16.',
        )
    for name in names:
        model.get_submodule(name).__class__ = Linear


def described(model: torch.nn.Module, layers: str, device: str) -> list[str]:
    """The report's sentences on formats and scales."""
    names, others = chosen(model, layers)
    every = dict.fromkeys(name.rpartition(".")[2] for name in names)
    text = (
        f"fp8: the products of {len(names)} linear layers ({', '.join(every)}) take activations and weights in e4m3 "
        "and gradients in e5m2, each tensor with one scale from its own largest value at that moment; results are "
        "bf16. Embeddings, head, norms, attention, gradients of biases and the optimizer are in bf16."
    )
    left = [f"{len(others)} linear layers stay in bf16, for their widths do not divide by 16."] if others else []
    return [text, *left, *([EMULATED] if device == "cpu" else [])]
