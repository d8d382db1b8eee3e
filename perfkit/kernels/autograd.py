"""Gradients of operators, worked out from the names in two schemas (see `perfkit.kernels.declare.Gradient`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from perfkit.errors import InputError
from perfkit.kernels.declare import NAMESPACE, Operation


def register_gradient(
    operation: Operation, library: torch.library.Library, runner_on: Callable[[str], Callable[..., Any] | None]
) -> None:
    """Register with autograd that `operation.gradient` computes the gradients of `operation`.

    Its schema is read at the first call, so the order in which operators are registered does not matter. `runner_on`
    gives what runs the operation on a device: calls that need no gradient go straight to it.
    """
    rule = _Rule(operation)
    kernels = _Kernels()
    torch.library.register_autograd(
        operation.qualified_name,
        rule.backward,
        setup_context=rule.setup_context,
        lib=cast(torch.library.Library, kernels),
    )
    shortcut = _Shortcut(kernels.registered, runner_on)
    library.impl(operation.name, shortcut, "Autograd", with_keyset=True)


class _Kernels:
    """Takes, in the place of a library, the kernel that PyTorch makes of a rule."""

    registered: Callable[..., Any]

    def impl(self, name: str, kernel: Callable[..., Any], key: str, with_keyset: bool) -> None:
        assert (key, with_keyset) == ("Autograd", True)
        self.registered = kernel


class _Shortcut:
    """An operator's kernel under autograd.

    PyTorch's own, written in Python like this one, takes 6 µs even where nothing needs a gradient, half as long as some
    of the operations themselves. Then, and if no mode (fake tensors, functionalization, …) wants to see the call, it
    is the next and last kernel that is called here directly.
    """

    def __init__(self, full: Callable[..., Any], runner_on: Callable[[str], Callable[..., Any] | None]) -> None:
        self._full = full
        self._runner_on = runner_on

    def __call__(self, keys: torch._C.DispatchKeySet, *arguments: Any) -> Any:
        if not torch.is_grad_enabled() or not any(getattr(a, "requires_grad", False) for a in arguments):
            bits = keys.raw_repr()
            device = _DEVICES[bits] if bits in _DEVICES else _remember_device(keys)
            run = self._runner_on(device) if device else None
            if run is not None:
                return run(*arguments)
        return self._full(keys, *arguments)


# The device whose kernel comes right after autograd, by the bits of a call's dispatch keys; None where another does.
_DEVICES: dict[int, str | None] = {}


def _remember_device(keys: torch._C.DispatchKeySet) -> str | None:
    last = (keys & torch._C._after_ADInplaceOrView_keyset).highestPriorityTypeId()
    devices = {torch._C.DispatchKey.CPU: "cpu", torch._C.DispatchKey.CUDA: "cuda"}
    return _DEVICES.setdefault(keys.raw_repr(), devices.get(last))


class _Rule:
    """What forward must keep and how backward is called, for one operation."""

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
