"""Inductor's sizes, precisions and operators in perfkit's terms."""

from __future__ import annotations

from typing import Any


def dtype_name(dtype: Any) -> str:
    """perfkit's name of a torch dtype: `fp32` for torch.float32."""
    name = str(dtype).removeprefix("torch.")
    names = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    return "fp8" if name.startswith("float8") else names.get(name, name)


class ChangingSize(Exception):
    """A size that changes from call to call: a kernel with such sizes has no one amount of work."""


def number(size: Any) -> float:
    """A size as a number. Raises `ChangingSize` for one that changes from call to call, as a graph has it that is
    compiled for any shape: to ask PyTorch for its value would make it a constant of the program."""
    if getattr(size, "free_symbols", None) or hasattr(size, "node"):
        raise ChangingSize
    return float(int(size))


def operator_name(node: Any) -> str:
    """`aten::add` for an FX node that calls `aten.add.Tensor`; "" for any other node."""
    schema = getattr(node.target, "_schema", None)
    return str(schema.name) if schema is not None else ""
