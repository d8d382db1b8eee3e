"""Calls of operators, written short, and their costs."""

from __future__ import annotations

from perfkit.cost import Argument, Call, Cost, CostModel, TensorSpec


def t(*shape: int, dtype: str = "fp32", strides: tuple[int, ...] | None = None) -> TensorSpec:
    """A tensor of these sizes."""
    return TensorSpec(shape, dtype, strides)


def cost(name: str, *arguments: Argument, precision: str = "fp32") -> Cost:
    """The cost of a call by its name and arguments."""
    found = CostModel().cost(Call(name, arguments, precision))
    assert found is not None, name
    return found


def flop(name: str, *arguments: Argument) -> float:
    """Its FLOP."""
    return cost(name, *arguments).total_flop


def traffic(name: str, *arguments: Argument) -> tuple[float, float]:
    """Its bytes read and written."""
    found = cost(name, *arguments)
    return found.bytes_read, found.bytes_written
