"""Gradients of operators, worked out from the names in two schemas (see `perfkit.kernels.declare.Gradient`)."""

from __future__ import annotations

from typing import Any

import torch

from perfkit.errors import InputError
from perfkit.kernels.declare import NAMESPACE, Operation


def register_gradient(operation: Operation, library: torch.library.Library) -> None:
    """Register in `library` that autograd runs `operation.gradient` for the gradient of `operation`.

    Its schema is read at the first call, so the order in which operators are registered does not matter.
    """
    rule = _Rule(operation)
    torch.library.register_autograd(
        operation.qualified_name, rule.backward, setup_context=rule.setup_context, lib=library
    )


class _Rule:
    """The tensors that forward keeps and the call of backward, for one operation."""

    def __init__(self, operation: Operation) -> None:
        assert operation.gradient is not None
        self.operation = operation
        self.gradient = operation.gradient

    def _backward_schema(self) -> tuple[list[str], list[str]]:
        """Names of the arguments and of the outputs of the gradient's operator."""
        schema = self._operator()._schema
        return [a.name for a in schema.arguments], [r.name for r in schema.returns]

    def _operator(self) -> Any:
        try:
            return getattr(getattr(torch.ops, NAMESPACE), self.gradient.operation).default
        except AttributeError as error:
            raise InputError(
                f"{self.operation.name} names {self.gradient.operation} as its gradient, which does not exist.",
                "Declare that operation, or correct the name.",
            ) from error

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the gradient's operator takes besides the incoming gradients."""
        signature = self.operation.signature
        outputs = (output,) if isinstance(output, torch.Tensor) else tuple(output)
        values = dict(zip(signature.inputs + signature.outputs, tuple(inputs) + outputs, strict=True))
        values.update({name: make(values) for name, make in self.gradient.derive.items()})
        arguments, _ = self._backward_schema()
        incoming = {f"d{name}" for name in signature.outputs}
        kept = {name: values[name] for name in arguments if name not in incoming}
        differentiable = {*arguments, *(f"d{name}" for name in self.gradient.incoming)}
        tensors = {name: v for name, v in kept.items() if isinstance(v, torch.Tensor)}
        ctx.save_for_backward(*tensors.values())
        ctx.saved_names = tuple(tensors)
        ctx.numbers = {name: v for name, v in kept.items() if name not in tensors}
        ctx.mark_non_differentiable(
            *(o for name, o in zip(signature.outputs, outputs, strict=True) if f"d{name}" not in differentiable)
        )

    def backward(self, ctx: Any, *gradients: torch.Tensor) -> Any:
        """Call the gradient's operator; inputs that it gives no gradient for get None."""
        signature = self.operation.signature
        arguments, results = self._backward_schema()
        values = dict(zip(ctx.saved_names, ctx.saved_tensors, strict=True)) | ctx.numbers
        values.update({f"d{name}": g for name, g in zip(signature.outputs, gradients, strict=True)})
        found = self._operator()(*(values[name] for name in arguments))
        found = (found,) if isinstance(found, torch.Tensor) else found
        by_name = dict(zip(results, found, strict=True))
        by_name |= {name: make(values, by_name) for name, make in self.gradient.also.items()}
        return tuple(by_name.get(f"d{name}") for name in signature.inputs)
