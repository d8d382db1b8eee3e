"""HLO modules inside a profile of XLA: what each operation does, in the program that ran.

HloProto: module 1. HloModuleProto: computations 3, schedule 7. HloComputationProto: name 1, instructions 2, id 5.
HloScheduleProto: sequences 1, a map from a computation's id (key 1) to the ids of its instructions (value 2, in it 1).
HloInstructionProto: name 1, opcode 2, shape 3, metadata 7, dot dimensions 30, convolution dimensions 16, target of a
custom call 28, id 35, operands 36, computations that it calls 38, its backend's settings 43, window 15.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from perfkit.readers.xla.wire import fields, message, number, numbers, text

# PrimitiveType of XLA by the names of `perfkit.cost.model.ITEM_BYTES`; others have no size here.
_TYPES = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 10: "fp16", 11: "fp32", 12: "fp64",
    15: "complex64", 16: "bf16", 18: "complex128", 19: "fp8", 20: "fp8", 23: "fp8", 24: "fp8", 25: "fp8",
}  # fmt: skip
_SIZES_AS = {8: "int32", 9: "int64", 7: "int16"}  # unsigned numbers of that size
_DEEPEST = 50  # shapes inside shapes, computations inside computations


class Tensor(NamedTuple):
    """An array: its type ("" where perfkit knows no size of it) and its dimensions."""

    dtype: str
    shape: tuple[int, ...]


@dataclass
class HloInstruction:
    """One operation. `operands` are numbers of instructions, `called` of computations, `computation` its own."""

    name: str = ""
    opcode: str = ""
    operator: str = ""  # the name that the program's own scopes give it: jit(f)/layer/dot_general
    target: str = ""
    tensors: list[Tensor] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    contracted: tuple[int, ...] | None = None  # dimensions of the first operand that a product sums over
    output_feature: int | None = None  # the dimension of a convolution's kernel that it does not sum over
    dilated: bool = False  # a convolution over an input with zeros between its elements, whose work is smaller
    number: int = 0
    computation: int = 0


@dataclass
class Module:
    """The instructions of a program, by name and by number, those of each computation, and in which order they run."""

    by_name: dict[str, HloInstruction] = field(default_factory=dict)
    by_number: dict[int, HloInstruction] = field(default_factory=dict)
    computations: dict[int, list[HloInstruction]] = field(default_factory=dict)
    schedules: dict[int, list[int]] = field(default_factory=dict)  # numbers of instructions, by computation

    def inside(self, one: HloInstruction, depth: int = 0) -> Iterator[HloInstruction]:
        """Give the instruction, and those of the computations that it calls."""
        yield one
        if depth < _DEEPEST:
            for number_ in one.called:
                for inner in self.computations.get(number_, []):
                    yield from self.inside(inner, depth + 1)


def read_module(data: bytes) -> Module:
    """Read an HloProto. Raises `Damaged` for one that cannot be."""
    found = Module()
    for number_, value in fields(data):
        if number_ == 1:
            for inner, computation in fields(message(value)):
                if inner == 3:
                    _add_computation(found, message(computation))
                elif inner == 7:
                    found.schedules = dict(_sequences(message(computation)))
    return found


def _sequences(data: memoryview) -> Iterator[tuple[int, list[int]]]:
    """The scheduled computations with their instructions in order."""
    for number_, entry in fields(data):
        if number_ == 1:
            computation, instructions = 0, list[int]()
            for inner, value in fields(message(entry)):
                if inner == 1:
                    computation = number(value)
                elif inner == 2:
                    instructions = [i for n, v in fields(message(value)) if n == 1 for i in numbers(v)]
            yield computation, instructions


def _add_computation(module: Module, data: memoryview) -> None:
    own, mine = 0, list[HloInstruction]()
    for number_, value in fields(data):
        if number_ == 2:
            mine.append(_instruction(message(value)))
        elif number_ == 5:
            own = number(value)
    module.computations[own] = mine
    for one in mine:
        one.computation = own
        module.by_name[one.name] = module.by_number[one.number] = one


def _instruction(data: memoryview) -> HloInstruction:
    instruction = HloInstruction()
    settings = b""
    for number_, value in fields(data):
        if number_ in (1, 2, 28):
            setattr(instruction, {1: "name", 2: "opcode", 28: "target"}[number_], text(value))
        elif number_ == 3:
            instruction.tensors = list(_tensors(message(value)))
        elif number_ == 7:
            instruction.operator = next((text(v) for n, v in fields(message(value)) if n == 2), "")
        elif number_ == 15:
            instruction.dilated = any(_is_dilated(message(v)) for n, v in fields(message(value)) if n == 1)
        elif number_ == 16:
            instruction.output_feature = next((number(v) for n, v in fields(message(value)) if n == 4), 0)
        elif number_ == 30:
            instruction.contracted = tuple(i for n, v in fields(message(value)) if n == 1 for i in numbers(v))
        elif number_ == 35:
            instruction.number = number(value)
        elif number_ in (36, 38):
            (instruction.operands if number_ == 36 else instruction.called).extend(numbers(value))
        elif number_ == 43:
            settings = bytes(message(value))
    if instruction.contracted is None and settings:
        instruction.contracted = _contracted(settings)
    return instruction


def _is_dilated(window: memoryview) -> bool:
    """Return whether a dimension of a convolution's window has zeros between the elements of its input."""
    return any(number(value) > 1 for number_, value in fields(window) if number_ == 6)


def _tensors(data: memoryview, depth: int = 0) -> Iterator[Tensor]:
    """The arrays of a shape: one, or those of a tuple."""
    kind, shape = 0, list[int]()
    for number_, value in fields(data):
        if number_ == 2:
            kind = number(value)
        elif number_ == 3:
            shape.extend(numbers(value))
        elif number_ == 4 and depth < _DEEPEST:
            yield from _tensors(message(value), depth + 1)
    if kind in _TYPES or kind in _SIZES_AS or shape:
        yield Tensor(_TYPES.get(kind) or _SIZES_AS.get(kind, ""), tuple(shape))


def _contracted(settings: bytes) -> tuple[int, ...] | None:
    """The dimensions that a product of a library sums over, in the settings of its custom call."""
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        said: Any = json.loads(settings)
        said = said.get("gemm_backend_config", said).get("dot_dimension_numbers")
        return tuple(int(i) for i in said["lhs_contracting_dimensions"]) if said else None
    return None


def elements(tensor: Tensor) -> int:
    """Return the number of elements of an array."""
    return math.prod(tensor.shape)
