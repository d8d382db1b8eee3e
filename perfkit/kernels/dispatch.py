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


@dataclass(frozen=True)
class Plan:
    """What every call with given shapes, types and numbers needs; `outputs` are the shape and type of each output."""

    implementation: Implementation
    launch: Launch
    scalars: tuple[int | float, ...]
    outputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    large: bool  # whether some output is worth huge pages


class Runner:
    """One operation as a function of its arguments in schema order, for one device."""

    def __init__(self, operation: Operation, device: str) -> None:
        self.operation = operation
        self.device = device
        self._tensors = operation.signature.tensors
        self._numbers = operation.signature.numbers
        self._single = len(operation.signature.outputs) == 1
        self._launchers: dict[tuple[Implementation, str], Launch] = {}
        self._plans: dict[tuple[Any, ...], Plan] = {}

    def __call__(self, *arguments: Any) -> Any:
        plan = self.plan(arguments)
        device = arguments[self._tensors[0]].device
        outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in plan.outputs]
        if plan.large:
            for output in outputs:
                advise_huge_pages(output)
        plan.launch([arguments[i].contiguous() for i in self._tensors] + outputs, plan.scalars)
        return outputs[0] if self._single else tuple(outputs)

    def plan(self, arguments: Sequence[Any]) -> Plan:
        """The plan for these arguments. Raises `InputError` when they do not fit, and what building raises."""
        key: list[Any] = [selection.wanted()]
        for i in self._tensors:
            tensor = arguments[i]
            key += (tensor.shape, tensor.dtype)
        key += [arguments[i] for i in self._numbers]
        plan = self._plans.get(tuple(key))
        if plan is None:
            plan = self._plans[tuple(key)] = self._make(arguments)
        return plan

    def prepare(self, dtype: str) -> Implementation:
        """Choose, build and bind the implementation for `dtype` before the first call."""
        chosen = selection.choose(self.operation, self.device, dtype, selection.wanted())
        self._launcher(chosen, dtype)
        return chosen

    def _make(self, arguments: Sequence[Any]) -> Plan:
        dtype = self._check(arguments)
        chosen = selection.choose(self.operation, self.device, dtype, selection.wanted())
        allocated = self.operation.allocate(*arguments)
        outputs = (allocated,) if self._single else allocated
        specs = tuple((tuple(o.shape), o.dtype) for o in outputs)
        large = self.device == "cpu" and any(o.nbytes >= WORTH_HUGE_PAGES for o in outputs)
        return Plan(chosen, self._launcher(chosen, dtype), tuple(self.operation.scalars(*arguments)), specs, large)

    def _launcher(self, chosen: Implementation, dtype: str) -> Launch:
        key = (chosen, dtype)
        if key not in self._launchers:
            self._launchers[key] = language(chosen).launcher(self.operation, chosen, dtype)
        return self._launchers[key]

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
