"""An operation bound to fixed tensors: inputs and outputs in memory of the caller's own, checked once, run many times.

This is the way for programs that keep all their tensors in one arena. An operator of `torch.ops.perfkit` makes its
outputs at each call; a bound operation writes to given memory, and can add to what is there, as gradients accumulate. A
profiler sees the same name and arguments either way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from perfkit.errors import InputError, UsageError
from perfkit.kernels.declare import Operation
from perfkit.kernels.dispatch import Kernel
from perfkit.kernels.dtypes import FP8, name_of
from perfkit.kernels.families import find
from perfkit.kernels.register import registered, runner

# Not public in PyTorch, and the only way to a range with arguments; Inductor's code uses it for the same purpose.
_record = torch._C._profiler._RecordFunctionFast


class Bound:
    """One operation on fixed tensors; calling it runs it. Made by `bind`."""

    def __init__(
        self,
        operation: Operation,
        kernel: Kernel,
        arguments: Sequence[Any],
        outputs: Sequence[Tensor],
        scalars: tuple[int | float, ...],
        accumulate: Collection[str],
    ) -> None:
        self.operation = operation
        self.implementation = kernel.implementation
        self._run = kernel.run
        self._arguments = list(arguments)
        self._mask = 0
        self._sums: list[tuple[Tensor, Tensor]] = []  # an output, and what is added to it afterwards
        targets = list(outputs)
        for i, name in enumerate(operation.signature.outputs):
            if name in accumulate and kernel.implementation.accumulates:
                self._mask |= 1 << i
            elif name in accumulate:
                targets[i] = torch.empty_like(outputs[i])
                self._sums.append((outputs[i], targets[i]))
        self._tensors = [arguments[i] for i in operation.signature.tensors] + targets
        self._numbers = self.implementation.numbers(scalars, self._mask)
        if self._mask:  # what a profiler keeps of the call, for its cost: adding reads, and may write less
            self._arguments.append(self._mask)

    def __call__(self, **numbers: int | float) -> None:
        """Run it; `numbers` changes arguments that are not tensors, by name, for this call and those after it."""
        if numbers:
            self._change(numbers)
        with _record(self.operation.qualified_name, self._arguments, {}):
            self._run(self._tensors, self._numbers)
            for output, term in self._sums:
                output.add_(term)

    def _change(self, numbers: dict[str, int | float]) -> None:
        """Take over new numbers. They may not change the shape of an output."""
        signature = self.operation.signature
        for name, value in numbers.items():
            if name not in signature.inputs or signature.kinds[signature.inputs.index(name)] == "Tensor":
                raise UsageError(
                    f"{self.operation.name} takes no number called {name}.", f"It takes {signature.inputs}."
                )
            self._arguments[signature.inputs.index(name)] = value
        scalars = tuple(self.operation.scalars(*self._arguments[: len(signature.inputs)]))
        self._numbers = self.implementation.numbers(scalars, self._mask)


def bind(
    operation: Operation | str,
    arguments: Sequence[Any],
    outputs: Sequence[Tensor] = (),
    accumulate: Collection[str] = (),
) -> Bound:
    """Bind an operation to its arguments, in schema order, and to contiguous tensors that it writes its outputs to.

    A name means the loaded operation: the user's own, where a folder of kernels replaced it.
    `accumulate` names outputs that it adds to instead of overwriting them. Which version runs is settled here, as for
    an operator's call. Outputs may share memory with inputs only where the operation's category is "elementwise" and
    the shapes are the same. Raises `InputError` when shapes, types or devices do not fit, and `Unavailable` or
    `RunFailed` when there is nothing to run.
    """
    operation = (registered(operation) or find(operation)) if isinstance(operation, str) else operation
    signature = operation.signature
    unknown = set(accumulate) - set(signature.outputs)
    if unknown:
        raise UsageError(
            f"{operation.name} has no output called {', '.join(sorted(unknown))}.", f"It has {signature.outputs}."
        )
    eights = [name for name in accumulate if operation.dtypes.get(name, "") in FP8]
    if eights:
        raise UsageError(
            f"{operation.name} cannot add to {', '.join(eights)}: numbers of fp8 have no sums.", "Cast a sum."
        )
    device = arguments[signature.tensors[0]].device
    plan = runner(operation, device.type).plan(arguments)
    if len(outputs) != len(signature.outputs):
        raise UsageError(
            f"{operation.name} has {len(signature.outputs)} outputs, not {len(outputs)}.", "Give each one."
        )
    for name, output, wanted in zip(signature.outputs, outputs, plan.outputs, strict=True):
        if (tuple(output.shape), output.dtype, output.device) != (wanted.shape, wanted.dtype, device):
            raise InputError(
                f"{operation.name} writes {name} as {name_of(wanted.dtype)} {wanted.shape} on {device}; it was given "
                f"{name_of(output.dtype)} {tuple(output.shape)} on {output.device}.",
                "Give a tensor of that shape and type.",
            )
    named = [(signature.inputs[i], arguments[i]) for i in signature.tensors]
    for name, tensor in [*named, *zip(signature.outputs, outputs, strict=True)]:
        if not tensor.is_contiguous():
            raise InputError(f"{operation.name}: {name} is not contiguous.", "Bind contiguous tensors.")
    return Bound(operation, plan.kernel, arguments, outputs, plan.scalars, accumulate)
