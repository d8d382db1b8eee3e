"""Run one operation on tensors: check shapes and types once for each combination, then allocate and launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from perfkit.errors import InputError
from perfkit.kernels import selection
from perfkit.kernels.c.binding import BoundCKernel
from perfkit.kernels.declare import Implementation, Operation
from perfkit.kernels.dtypes import TORCH_DTYPES, name_of
from perfkit.kernels.languages import language
from perfkit.kernels.memory import WORTH_HUGE_PAGES, empty
from perfkit.kernels.shapes import mismatch

# Number of sets of numbers that are remembered for tensors of the same shapes and types.
KEPT_NUMBERS = 64

# Allocators of Inductor's generated code, by device: they take a quarter of the time of `torch.empty` with keywords.
# That for a GPU takes memory of the current one.
_EMPTY = {
    device: getattr(torch._C._dynamo.guards, f"_empty_strided_{device}", None) if hasattr(torch._C, needed) else None
    for device, needed in (("cpu", "_dynamo"), ("cuda", "_cuda_getDevice"))
}
_current_gpu = getattr(torch._C, "_cuda_getDevice", None)


@dataclass(frozen=True)
class Kernel:
    """One implementation, built and bound, for one precision."""

    implementation: Implementation
    run: BoundCKernel

    def launch(self, tensors: Sequence[torch.Tensor], scalars: tuple[int | float, ...]) -> None:
        """Run on contiguous inputs, then outputs."""
        self.run(tensors, self.implementation.numbers(scalars))


class OutputLayout(NamedTuple):
    """Shape, strides and type of an output."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class CallPlan(NamedTuple):
    """The data that every call with given shapes, types and numbers needs."""

    kernel: Kernel
    run: BoundCKernel
    scalars: tuple[int | float, ...]
    numbers: tuple[int | float, ...]  # the scalars as `run` takes them
    outputs: tuple[OutputLayout, ...]
    large: bool  # whether some output is worth huge pages


Plans = dict[tuple[Any, ...], dict[tuple[Any, ...], CallPlan]]


class Runner:
    """One operation as a function of its arguments in schema order, for one device.

    A small kernel takes ten microseconds, and so may the way to it: what can be known before a call is known before it.
    """

    def __init__(self, operation: Operation, device: str) -> None:
        self.operation = operation
        self.device = device
        signature = operation.signature
        self._tensors = signature.tensors
        self._numbers = signature.numbers
        self._mutated = tuple(signature.inputs.index(name) for name in signature.mutated)
        self._outputs = len(signature.outputs)
        self._kernels: dict[tuple[Implementation, str], Kernel] = {}
        # For each version that may be asked for, by shapes and types, then by numbers: a learning rate may be another
        # one at each call.
        self._plans: Plans = {}
        self._plans_by_wanted: dict[selection.WantedVersion, Plans] = {}
        self._wanted: selection.WantedVersion | None = None
        self._empty = _EMPTY.get(device)

    def __call__(self, *arguments: Any) -> Any:
        plan = self.plan(arguments)
        given = [arguments[i] for i in self._tensors] if self._numbers else arguments
        tensors = [t if t.is_contiguous() else t.contiguous() for t in given]
        outputs = self._allocate(plan, given[0])
        plan.run(tensors + outputs, plan.numbers)
        if self._mutated:
            for i in self._mutated:
                if not arguments[i].is_contiguous():
                    arguments[i].copy_(tensors[self._tensors.index(i)])
        return outputs[0] if self._outputs == 1 else tuple(outputs) if outputs else None

    def _allocate(self, plan: CallPlan, first: torch.Tensor) -> list[torch.Tensor]:
        make = self._empty
        if make is None or plan.large or (_current_gpu and first.is_cuda and first.get_device() != _current_gpu()):
            return [empty(o.shape, o.dtype, first.device) for o in plan.outputs]
        return [make(*specification) for specification in plan.outputs]

    def plan(self, arguments: Sequence[Any]) -> CallPlan:
        """The plan for these arguments. Raises `InputError` when they do not fit, and what building raises."""
        wanted = selection.wanted()
        if wanted is not self._wanted:
            self._plans = self._plans_by_wanted.setdefault(wanted, {})
            self._wanted = wanted
        numbers: tuple[Any, ...] = ()
        if self._numbers:
            tensors = [arguments[i] for i in self._tensors]
            numbers = tuple([arguments[i] for i in self._numbers])
        else:
            tensors = arguments  # type: ignore[assignment]
        of_these_tensors = self._plans.get(self._key(tensors))
        plan = of_these_tensors.get(numbers) if of_these_tensors else None
        return plan or self._new_plan(arguments, tensors, numbers)

    def _key(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Check the devices once: PyTorch accepts CPU tensors together with those of another device."""
        if self.device == "cpu":
            return tuple([(t.shape, t.dtype) for t in tensors])
        return tuple([(t.shape, t.dtype, t.get_device()) for t in tensors])

    def _new_plan(
        self, arguments: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: tuple[Any, ...]
    ) -> CallPlan:
        plan = self._make(arguments)
        of_these_tensors = self._plans.setdefault(self._key(tensors), {})
        if len(of_these_tensors) >= KEPT_NUMBERS:
            of_these_tensors.clear()
        of_these_tensors[numbers] = plan
        return plan

    def prepare(self, dtype: str) -> Implementation:
        """Choose, build and bind the implementation for `dtype` before the first call."""
        chosen = selection.choose(self.operation, self.device, dtype, selection.wanted())
        return self._kernel(chosen, dtype).implementation

    def _make(self, arguments: Sequence[Any]) -> CallPlan:
        dtype = self._check(arguments)
        chosen = selection.choose(self.operation, self.device, dtype, selection.wanted())
        allocated = self.operation.allocate(*arguments)
        made = (allocated,) if self._outputs == 1 else allocated
        outputs = tuple(OutputLayout(tuple(o.shape), o.stride(), o.dtype) for o in made)
        large = self.device == "cpu" and any(o.nbytes >= WORTH_HUGE_PAGES for o in made)
        kernel, scalars = self._kernel(chosen, dtype), tuple(self.operation.scalars(*arguments))
        return CallPlan(kernel, kernel.run, scalars, kernel.implementation.numbers(scalars), outputs, large)

    def _kernel(self, chosen: Implementation, dtype: str) -> Kernel:
        key = (chosen, dtype)
        if key not in self._kernels:
            self._kernels[key] = Kernel(chosen, language(chosen).launcher(self.operation, chosen, dtype))
        return self._kernels[key]

    def _check(self, arguments: Sequence[Any]) -> str:
        """The working precision, after checking every tensor's device, shape and type."""
        operation = self.operation
        tensors = {operation.signature.inputs[i]: arguments[i] for i in self._tensors}
        problem = mismatch(operation.shapes, {name: tensor.shape for name, tensor in tensors.items()})
        if problem:
            raise InputError(f"{operation.qualified_name}: {problem}.", f"Its shapes are {dict(operation.shapes)}.")
        working = next(t.dtype for name, t in tensors.items() if name not in operation.dtypes)
        for name, tensor in tensors.items():
            wanted = TORCH_DTYPES[operation.dtypes[name]] if name in operation.dtypes else working
            if tensor.dtype != wanted or tensor.device.type != self.device:
                raise InputError(
                    f"{operation.qualified_name}: {name} is {name_of(tensor.dtype)} on {tensor.device.type} where "
                    f"{name_of(wanted)} on {self.device} is needed.",
                    "Convert it first.",
                )
        return name_of(working)
