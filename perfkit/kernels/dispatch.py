"""Run one operation on tensors: check shapes and types once for each combination, then allocate and launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from perfkit.errors import InputError
from perfkit.kernels import selection
from perfkit.kernels.c.binding import Launch
from perfkit.kernels.declare import Implementation, Operation
from perfkit.kernels.dtypes import TORCH_DTYPES, name_of
from perfkit.kernels.languages import language
from perfkit.kernels.memory import WORTH_HUGE_PAGES, advise_huge_pages
from perfkit.kernels.shapes import mismatch

# How many sets of numbers are remembered for tensors of the same shapes and types.
KEPT_NUMBERS = 64


@dataclass(frozen=True)
class Kernel:
    """One implementation, built and bound, for one precision."""

    implementation: Implementation
    run: Launch

    def launch(self, tensors: Sequence[torch.Tensor], scalars: tuple[int | float, ...], accumulate: int = 0) -> None:
        """Run on inputs, then outputs; bit i of `accumulate` adds to output i, where the implementation can."""
        self.run(tensors, (*scalars, accumulate) if self.implementation.accumulates else scalars)


@dataclass(frozen=True)
class Plan:
    """What every call with given shapes, types and numbers needs; `outputs` are the shape and type of each output."""

    kernel: Kernel
    scalars: tuple[int | float, ...]
    outputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    large: bool  # whether some output is worth huge pages


class Runner:
    """One operation as a function of its arguments in schema order, for one device."""

    def __init__(self, operation: Operation, device: str) -> None:
        self.operation = operation
        self.device = device
        signature = operation.signature
        self._tensors = signature.tensors
        self._numbers = signature.numbers
        self._mutated = tuple(signature.inputs.index(name) for name in signature.mutated)
        self._outputs = len(signature.outputs)
        self._kernels: dict[tuple[Implementation, str], Kernel] = {}
        # By shapes and types, then by numbers: a learning rate may be another one at each call.
        self._plans: dict[tuple[Any, ...], dict[tuple[Any, ...], Plan]] = {}

    def __call__(self, *arguments: Any) -> Any:
        plan = self.plan(arguments)
        device = arguments[self._tensors[0]].device
        outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in plan.outputs]
        if plan.large:
            for output in outputs:
                advise_huge_pages(output)
        inputs = [arguments[i].contiguous() for i in self._tensors]
        plan.kernel.launch(inputs + outputs, plan.scalars)
        for i in self._mutated:
            if not arguments[i].is_contiguous():
                arguments[i].copy_(inputs[self._tensors.index(i)])
        return outputs[0] if self._outputs == 1 else tuple(outputs) if outputs else None

    def plan(self, arguments: Sequence[Any]) -> Plan:
        """The plan for these arguments. Raises `InputError` when they do not fit, and what building raises."""
        key: list[Any] = [selection.wanted()]
        for i in self._tensors:
            tensor = arguments[i]
            key += (tensor.shape, tensor.dtype)
        of_these_tensors = self._plans.setdefault(tuple(key), {})
        numbers = tuple([arguments[i] for i in self._numbers])
        plan = of_these_tensors.get(numbers)
        if plan is None:
            plan = self._make(arguments)
            if len(of_these_tensors) >= KEPT_NUMBERS:
                of_these_tensors.clear()
            of_these_tensors[numbers] = plan
        return plan

    def prepare(self, dtype: str) -> Implementation:
        """Choose, build and bind the implementation for `dtype` before the first call."""
        chosen = selection.choose(self.operation, self.device, dtype, selection.wanted())
        return self._kernel(chosen, dtype).implementation

    def _make(self, arguments: Sequence[Any]) -> Plan:
        dtype = self._check(arguments)
        chosen = selection.choose(self.operation, self.device, dtype, selection.wanted())
        allocated = self.operation.allocate(*arguments)
        outputs = (allocated,) if self._outputs == 1 else allocated
        specs = tuple((tuple(o.shape), o.dtype) for o in outputs)
        large = self.device == "cpu" and any(o.nbytes >= WORTH_HUGE_PAGES for o in outputs)
        return Plan(self._kernel(chosen, dtype), tuple(self.operation.scalars(*arguments)), specs, large)

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
