"""Small helpers of every family: units, dtype promotion, broadcasting, reading scalar arguments, and adding up bytes.

All of them raise `TypeError` or `ValueError` for arguments that do not fit; `CostModel.cost` turns that into "unknown".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from perfkit.cost.model import Argument, Call, Cost, TensorSpec

# An argument that the profiler did not write down (a scalar of an old trace, for example).
UNRECORDED = "?"

_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
_FLOATS = ("fp8", "fp16", "bf16", "fp32", "fp64")
_COMPLEX = {"complex64": "fp32", "complex128": "fp64"}  # and the dtype of their two parts
_ORDER = (*_INTEGERS, *_FLOATS, *_COMPLEX)

# torch.dtype arguments are recorded as the number of c10::ScalarType.
SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 9: "complex64",
    10: "complex128", 11: "bool", 15: "bf16", 23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8",
}  # fmt: skip


def is_complex(dtype: str) -> bool:
    """Return whether a number of `dtype` is a pair of real ones."""
    return dtype in _COMPLEX


def part(dtype: str) -> str:
    """The dtype of the two parts of a complex number; `dtype` itself where it is real."""
    return _COMPLEX.get(dtype, dtype)


def vector_unit(dtype: str) -> str:
    """The vector resource that computes in `dtype`; fp8 is computed in fp16.

    Raises `ValueError` for complex dtypes, whose arithmetic is that of their parts and has counts of its own, and for
    unknown ones.
    """
    if dtype in _INTEGERS:
        return "vector_int"
    if dtype not in (*_FLOATS, "tf32"):
        raise ValueError(f"no cost formula for arithmetic in {dtype}")
    return {"fp8": "vector_fp16", "tf32": "vector_fp32"}.get(dtype, f"vector_{dtype}")


def sums(dtype: str, count: float) -> dict[str, float]:
    """FLOP of `count` additions of numbers of `dtype`: two each where they are complex."""
    return {vector_unit(part(dtype)): float(count) * (2 if is_complex(dtype) else 1)}


def matrix_unit(dtype: str, precision: str) -> str:
    """The matrix resource for products of `dtype`; fp32 products run as tf32 where `precision` says so."""
    if dtype in ("fp32", "tf32"):
        return "matrix_tf32" if "tf32" in (dtype, precision) else "matrix_fp32"
    if dtype in ("int8", "uint8"):
        return "matrix_int8"
    return f"matrix_{dtype}" if dtype in _FLOATS else vector_unit(dtype)


def promote(arguments: Iterable[Argument]) -> str:
    """Result dtype of tensors and numbers by PyTorch's rules.

    0-d tensors and numbers only raise the category (bool < integer < real < complex), never the width within it.
    """
    dimensioned, wide, numbers = "", "", ""
    for argument in arguments:
        if isinstance(argument, TensorSpec):
            if argument.shape:
                dimensioned = _wider(dimensioned, argument.dtype)
            else:
                wide = _wider(wide, argument.dtype)
        elif isinstance(argument, float):
            numbers = _wider(numbers, "fp32")
        elif isinstance(argument, int):
            numbers = _wider(numbers, "bool" if isinstance(argument, bool) else "int64")
    for weaker in (wide, numbers):
        if _category(weaker) > _category(dimensioned):
            # A double 0-d tensor is mostly a Python number: with integers it gives the default dtype.
            dimensioned = "fp32" if dimensioned and weaker == "fp64" else weaker
    if not dimensioned:
        raise TypeError("no tensor to take the dtype from")
    return dimensioned


def _wider(a: str, b: str) -> str:
    if not a or not b or a == b:
        return a or b
    if {a, b} == {"fp16", "bf16"}:
        return "fp32"
    return a if _ORDER.index(a) > _ORDER.index(b) else b


def _category(dtype: str) -> int:
    if not dtype:
        return -1
    if dtype == "bool":
        return 0
    return 1 if dtype in _INTEGERS else 2 if dtype in _FLOATS or dtype == "tf32" else 3


def floating(dtype: str) -> str:
    """Return the dtype of a real function of `dtype`: integers become the default dtype, fp32."""
    return "fp32" if dtype in _INTEGERS else dtype


def broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape under broadcasting; raises `ValueError` if there is none."""
    result: list[int] = []
    for shape in shapes:
        padded = (1,) * (len(result) - len(shape)) + shape
        result = [1] * (len(padded) - len(result)) + result
        for i, (a, b) in enumerate(zip(result, padded, strict=True)):
            if a != b and 1 not in (a, b):
                raise ValueError(f"shapes do not broadcast: {a} and {b}")
            result[i] = b if a == 1 else a
    return tuple(result)


def dense(shape: Sequence[int], dtype: str) -> TensorSpec:
    """A tensor that owns every element of `shape`: what an operator returns."""
    return TensorSpec(tuple(shape), dtype)


def axis(position: int, dimensions: int) -> int:
    """The axis as a non-negative index; raises `ValueError` outside the shape. A 0-d tensor has axis 0."""
    limit = max(dimensions, 1)
    if not -limit <= position < limit:
        raise ValueError(f"no axis {position} in {dimensions} dimensions")
    return position % limit


def size_along(tensor: TensorSpec, position: int) -> int:
    """Length of `tensor` along an axis (negative counts from the end); 1 for a 0-d tensor."""
    return tensor.shape[axis(position, len(tensor.shape))] if tensor.shape else 1


def tensor_at(call: Call, index: int) -> TensorSpec | None:
    """The tensor at `index`, or None where the argument is missing, None or not a tensor."""
    argument = call.arguments[index] if index < len(call.arguments) else None
    return argument if isinstance(argument, TensorSpec) else None


def tensors_at(call: Call, index: int) -> tuple[TensorSpec, ...]:
    """The tensors of the list at `index`; raises `TypeError` if it is not one."""
    argument = call.arguments[index] if index < len(call.arguments) else None
    if not isinstance(argument, tuple) or not all(isinstance(a, TensorSpec) for a in argument):
        raise TypeError(f"{call.name}: argument {index} is not a list of tensors")
    return tuple(a for a in argument if isinstance(a, TensorSpec))


def number_at(call: Call, index: int, default: float) -> float:
    """The number at `index`; `default` where it is missing, None, a tensor or was not recorded."""
    argument = call.arguments[index] if index < len(call.arguments) else None
    return argument if isinstance(argument, int | float) else default


def integer_at(call: Call, index: int) -> int:
    """The integer at `index`; raises `TypeError` if it is missing (it decides about shapes)."""
    argument = call.arguments[index] if index < len(call.arguments) else None
    if not isinstance(argument, int):
        raise TypeError(f"{call.name}: argument {index} is not an integer")
    return int(argument)


def integers_at(call: Call, index: int, count: int = 0) -> tuple[int, ...]:
    """The list of integers at `index`, a single one repeated to `count`; raises `TypeError` if it is missing."""
    argument = call.arguments[index] if index < len(call.arguments) else None
    if isinstance(argument, int):
        argument = (argument,)
    if not isinstance(argument, tuple) or not all(isinstance(a, int) for a in argument):
        raise TypeError(f"{call.name}: argument {index} is not a list of integers")
    values = tuple(int(a) for a in argument if isinstance(a, int))
    return values * count if len(values) == 1 and count else values


def mask_at(call: Call, index: int, count: int) -> tuple[bool, ...]:
    """The output mask at `index` (which gradients are wanted); all of them where it was not recorded."""
    argument = call.arguments[index] if index < len(call.arguments) else None
    if isinstance(argument, tuple) and len(argument) == count:
        return tuple(bool(a) for a in argument)
    return (True,) * count


def dtype_at(call: Call, index: int, default: str) -> str:
    """The dtype argument at `index` (a ScalarType number, or a name such as `bf16`), else `default`."""
    argument = call.arguments[index] if index < len(call.arguments) else None
    if isinstance(argument, str) and argument in _ORDER:
        return argument
    if isinstance(argument, int) and not isinstance(argument, bool):
        return SCALAR_TYPES.get(argument, default)
    return default


def nbytes(tensors: Iterable[TensorSpec | None]) -> float:
    """Bytes of distinct storage over `tensors`; None counts nothing."""
    return float(sum(t.nbytes for t in tensors if t is not None))


def work(flop: Mapping[str, float], read: Iterable[TensorSpec | None], written: Iterable[TensorSpec | None]) -> Cost:
    """A cost from FLOP by unit and the tensors read and written."""
    return Cost(dict(flop), nbytes(read), nbytes(written))


def movement(read: Iterable[TensorSpec | None], written: Iterable[TensorSpec | None]) -> Cost:
    """A cost that is traffic only: the FLOP are known to be zero, so the unit is named with 0."""
    written = list(written)
    dtype = next((t.dtype for t in written if t is not None), "fp32")
    return work({vector_unit(part(dtype)): 0.0}, read, written)


def product(sizes: Iterable[int]) -> int:
    """Product of sizes; 1 for none."""
    return math.prod(sizes)
