"""From what torch.profiler writes about an operator's arguments to a `Call`.

A trace event's `args` hold, with record_shapes, parallel lists: "Input Dims", "Input type", "Input Strides", "Concrete
Inputs". A tensor has its C++ type name ("float", "long int", "c10::BFloat16"), a scalar or list of numbers "Scalar" or
"ScalarList" with its value as text, a list of tensors "TensorList" **without** its dtype, and everything else
(None, strings, lists of optional tensors) an empty type. A Python number in a tensor's place appears as a 0-d tensor.
A sparse tensor has the shape of the whole and an empty list of strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perfkit.cost.model import Argument, Call, TensorSpec
from perfkit.cost.shapes import UNRECORDED

_TYPES = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16", "bool": "bool",
    "long int": "int64", "long": "int64", "long long": "int64", "__int64": "int64", "int": "int32",
    "short int": "int16", "short": "int16", "signed char": "int8", "char": "int8", "unsigned char": "uint8",
    "unsigned short": "int16", "short unsigned int": "int16", "unsigned int": "int32", "unsigned long": "int64",
    "long unsigned int": "int64", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "c10::quint8": "uint8", "c10::qint8": "int8", "c10::qint32": "int32",
}  # fmt: skip
_WHOLE = {int, bool}
_LISTS = (list, tuple)  # not a union, which each test would build again


def dtype_name(recorded: str) -> str:
    """perfkit's dtype of a C++ type name; the name itself where it is not known (it then gets no cost)."""
    return "fp8" if recorded.startswith("c10::Float8") else _TYPES.get(recorded, recorded)


def recorded_call(
    name: str, arguments: Mapping[str, Any], *, list_dtype: str = "fp32", matmul_precision: str = "fp32"
) -> Call:
    """The `Call` of a profiler event with `arguments` as in the trace's `args`.

    The dtype of tensor lists is not recorded: `list_dtype` is taken (give the run's parameter dtype). Anything that
    does not look as it should becomes an unknown argument; nothing is raised.
    """
    types = _list(arguments, "Input type")
    others = ("Input Dims", "Input Strides", "Concrete Inputs")
    dims, strides, concrete = [_padded(_list(arguments, key), len(types)) for key in others]
    found = [
        _argument(_text(kind), sizes, steps, _text(value), list_dtype)
        for kind, sizes, steps, value in zip(types, dims, strides, concrete, strict=True)
    ]
    return Call(name, tuple(found), matmul_precision)


def _list(arguments: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = arguments.get(key)
    return value if isinstance(value, _LISTS) else ()


def _padded(values: Sequence[Any], length: int) -> Sequence[Any]:
    """The first `length` values, None where there are fewer."""
    return [*values[:length], *[None] * (length - len(values))] if len(values) != length else values


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _argument(kind: str, dims: Any, strides: Any, value: str, list_dtype: str) -> Argument:
    if kind in ("Scalar", "ScalarList"):
        return _value(value)
    if kind == "TensorList":
        if not isinstance(dims, _LISTS):
            return UNRECORDED
        given = strides if isinstance(strides, _LISTS) and len(strides) == len(dims) else [None] * len(dims)
        specs = [_tensor(d, s, list_dtype) for d, s in zip(dims, given, strict=True)]
        return tuple(s for s in specs if s is not None)
    return _tensor(dims, strides, dtype_name(kind)) if kind else None


def _tensor(dims: Any, strides: Any, dtype: str) -> TensorSpec | None:
    if not _are_sizes(dims):
        return None
    fits = _are_sizes(strides) and len(strides) == len(dims)
    strided = fits or not isinstance(strides, _LISTS) or bool(strides)
    return TensorSpec(tuple(dims), dtype, tuple(strides) if fits else None, strided=strided)


def _are_sizes(values: Any) -> bool:
    if not isinstance(values, _LISTS):
        return False
    return not values or (set(map(type, values)) <= _WHOLE and min(values) >= 0)


def _value(text: str) -> Argument:
    """A number, a flag, or a list of them from its text; `UNRECORDED` where the trace has none."""
    if not text:
        return UNRECORDED
    if text.startswith("["):
        parts = [_number(part.strip()) for part in text.strip("[]").split(",") if part.strip()]
        # A list of real numbers goes the same way; the cost functions look at each element's type.
        known = cast("tuple[int, ...]", tuple(p for p in parts if p is not None))
        return known if len(known) == len(parts) else UNRECORDED
    number = _number(text)
    return UNRECORDED if number is None else number


def _number(text: str) -> int | float | bool | None:
    if text in ("True", "False"):
        return text == "True"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return None
