"""From what a trace records of a call to a recipe (`perfkit.replay.rebuilt`), by the operator's own schema.

The trace has one entry for each argument of the schema, in its order. It lacks an overload's name: the first
schema that every entry fits is taken, the one with fewest arguments left over. What is not recorded takes the schema's
default, or a value that is stated; where a value would decide what is computed, the call cannot be rebuilt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from perfkit.cost.recorded import dtype_name
from perfkit.errors import InputError
from perfkit.replay import fills
from perfkit.replay.origins import with_forward
from perfkit.replay.rebuilt import Recipe
from perfkit.replay.recorded import OperatorCalls

_TORCH = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
}  # fmt: skip
_SCALAR_TYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128",
    "bool", "", "", "", "bfloat16",
)  # fmt: skip
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_GELU = re.compile(r"Gelu(?:Backward)?CUDAKernelImpl\(.*?\{lambda\(\)#(\d)\}")
_PLAIN = ("Scalar", "ScalarList", "TensorList", "GenericList", "")
_IN_NAMES = {"float": "float32", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "double": "float64"}


class NotRebuilt(InputError):
    """A call that cannot be rebuilt from what the trace holds of it."""


@dataclass
class Rebuilt:
    """A recipe, and in sentences what was not recorded and is taken instead."""

    recipe: Recipe
    stated: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ArgumentRecord:
    """An argument as recorded; `known` is False where the trace has no values at all."""

    kind: str
    dims: Any
    strides: Any
    value: str
    known: bool


def rebuilt(calls: OperatorCalls, list_dtype: str) -> Rebuilt:
    """The recipe of recorded calls; `list_dtype` is the dtype of tensors in lists. Raises `NotRebuilt`."""
    entries = entries_of(calls.arguments)
    known = "::" in calls.operator  # others are functions of autograd, or kernels that a compiler generated
    schemas = torch._C._jit_get_schemas_for_operator(calls.operator) if known else []
    if not schemas:
        raise NotRebuilt(f"The PyTorch that runs here has no operator {calls.operator}.", ELSE)
    if not entries and any(schema.arguments for schema in schemas):
        raise NotRebuilt(f"The trace has no arguments of {calls.operator}.", "Record it with record_shapes=True.")
    fitting = [schema for schema in schemas if _fits(schema, entries, bool(_UNDEFINED.search(calls.operator)))]
    if not fitting:
        raise NotRebuilt(f"No overload of {calls.operator} here takes what the trace records of it.", ELSE)
    schema = min(fitting, key=lambda one: (len(one.arguments) - len(entries), one.overload_name != ""))
    return _Binder(calls, schema, entries, _listed(calls, list_dtype)).bound()


_UNDEFINED = re.compile("backward|attention")  # operators that PyTorch itself calls with undefined tensors
ELSE = "Choose another with --kernel or --operator."


def entries_of(arguments: Mapping[str, Any]) -> list[ArgumentRecord]:
    """Return the arguments in order, as recorded in the trace."""
    types = arguments.get("Input type") or []
    known = "Concrete Inputs" in arguments
    columns = [arguments.get(name) or [] for name in ("Input Dims", "Input Strides", "Concrete Inputs")]
    dims, strides, values = [[*column[: len(types)], *[None] * (len(types) - len(column))] for column in columns]
    return [
        ArgumentRecord(str(kind), d, s, v if isinstance(v, str) else "", known)
        for kind, d, s, v in zip(types, dims, strides, values, strict=True)
    ]


def _listed(calls: OperatorCalls, list_dtype: str) -> str:
    """The dtype of tensors in lists: as the kernel's name says, else the usual one of the trace."""
    name = calls.kernels[0] if calls.kernels else ""
    found = {_IN_NAMES[word] for word in re.findall(r"c10::BFloat16|c10::Half|\bfloat\b|\bdouble\b", name)}
    return found.pop() if len(found) == 1 else _TORCH.get(list_dtype, "float32")


def _fits(schema: Any, entries: Sequence[ArgumentRecord], undefined: bool) -> bool:
    """Return whether entries can be the arguments of `schema`; tensors may be `undefined` where no None is allowed."""
    left = schema.arguments[len(entries) :]
    if len(schema.arguments) < len(entries) or any(not one.has_default_value() for one in left):
        return False
    pairs = zip(schema.arguments, entries, strict=False)
    return all(_fits_one(one, entry) or (undefined and entry.kind == "" and str(one.type) == "Tensor")
               for one, entry in pairs)  # fmt: skip


def _fits_one(argument: Any, entry: ArgumentRecord) -> bool:
    wanted, optional = _type_of(argument)
    if entry.kind == "":
        # None, and whatever PyTorch has no word for: strings, devices, lists of optional tensors.
        return optional or wanted not in ("Tensor", "List[Tensor]", "int", "float", "number", "bool")
    if entry.kind == "Scalar":
        return wanted in ("int", "float", "number", "bool", "SymInt") and _value_fits(wanted, entry.value)
    if entry.kind == "ScalarList":
        return wanted.startswith("List[") and "Tensor" not in wanted
    if entry.kind in ("TensorList", "GenericList"):
        return wanted == "List[Tensor]"
    return wanted == "Tensor"


def _value_fits(wanted: str, value: str) -> bool:
    if not value or wanted == "number":
        return True
    truth = value in ("True", "False")
    return truth if wanted == "bool" else not truth and (wanted == "float" or re.fullmatch(r"-?\d+", value) is not None)


def _type_of(argument: Any) -> tuple[str, bool]:
    """The type of an argument of a schema, and whether it may be None."""
    text = str(argument.type)
    found = re.fullmatch(r"Optional\[(.*)\]", text)
    return (found[1], True) if found else (text, False)


class _Binder:
    """Binds recorded entries to the arguments of a schema."""

    def __init__(self, calls: OperatorCalls, schema: Any, entries: Sequence[ArgumentRecord], list_dtype: str) -> None:
        self.calls, self.schema, self.entries, self.list_dtype = calls, schema, entries, list_dtype
        self.values: dict[str, Any] = {}
        self.stated: list[str] = []

    def bound(self) -> Rebuilt:
        """The recipe."""
        for argument, entry in zip(self.schema.arguments, self.entries, strict=False):
            self.values[argument.name] = self._value(argument, entry)
        for name, value in self.values.items():
            self._fill(name, value)
        self._place()
        if any(e.kind not in _PLAIN and e.strides is None and e.dims for e in self.entries):
            self.stated.append("Strides are not recorded: every tensor is contiguous.")
        changed = [a.name for a in self.schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        recipe = {
            "operator": self.calls.operator,
            "overload": self.schema.overload_name,
            "arguments": [
                [a.name, a.kwarg_only, self.values[a.name]] for a in self.schema.arguments if a.name in self.values
            ],
            "changed": [name for name in changed if name in self.values],
        }
        if said := with_forward(recipe):
            self.stated.append(said)
        return Rebuilt(recipe, self.stated)

    def _value(self, argument: Any, entry: ArgumentRecord) -> dict[str, Any]:
        wanted, optional = _type_of(argument)
        if entry.kind not in _PLAIN:
            return tensor_of(self.calls.operator, argument.name, entry)
        if entry.kind in ("TensorList", "GenericList"):
            return self._list(argument, entry)
        if entry.value:
            return value_of(entry.value, str(getattr(argument, "real_type", "")))
        if wanted == "Tensor" and entry.kind == "":
            return {"value": None}
        unsure = not entry.known and "List" in wanted  # an old trace has the same entry for None and for a list
        if entry.kind == "" and optional and not unsure:
            factory = wanted == "Device" and not any(e.kind not in _PLAIN for e in self.entries)
            return {"device": ""} if factory else {"value": None}
        return self._unrecorded(argument, wanted)

    def _list(self, argument: Any, entry: ArgumentRecord) -> dict[str, Any]:
        dims = entry.dims
        if dims == [] and any(e.kind == "TensorList" and e.dims for e in self.entries):
            return {"value": []}
        if not dims or not all(isinstance(one, list) for one in dims):
            raise NotRebuilt(f"The trace has no shapes of the list {argument.name} of {self.calls.operator}.", ELSE)
        strides = entry.strides if isinstance(entry.strides, list) and len(entry.strides) == len(dims) else None
        dtype = "float32" if argument.name == "state_steps" else self.list_dtype
        text = f"Dtypes in lists of tensors are not recorded: {dtype} is taken."
        if argument.name != "state_steps" and text not in self.stated:
            self.stated.append(text)
        steps = strides or [None] * len(dims)
        each = [ArgumentRecord(dtype, d, s, "", True) for d, s in zip(dims, steps, strict=True)]
        return {"list": [tensor_of(self.calls.operator, argument.name, one) for one in each]}

    def _unrecorded(self, argument: Any, wanted: str) -> dict[str, Any]:
        name = argument.name
        if name == "normalized_shape" and "tensor" in self._later("weight"):
            return {"value": self._later("weight")["tensor"]["shape"]}
        if name == "approximate" and (found := _gelu(self.calls.kernels)):
            return {"value": found}
        if argument.has_default_value():
            value = argument.default_value
        elif wanted == "bool":
            value = False
        elif wanted in ("float", "number"):
            value = 1e-5 if "eps" in name else 1
        elif wanted == "List[bool]":
            value = [True, True, True]
        elif name == "dim" and len(self.values["self"].get("tensor", {}).get("shape", [0, 0])) == 1:
            value = 0
        else:
            sentence = f"{self.calls.operator} cannot be rebuilt: the trace does not record its {name}."
            raise NotRebuilt(sentence, "PyTorch from 2.1 on records values with record_shapes=True.")
        if value is not None:
            self.stated.append(f"{name} is not recorded: {value!r} is taken.")
        return {"value": value}

    def _later(self, name: str) -> dict[str, Any]:
        """The value of an argument that may come later."""
        pairs = zip(self.schema.arguments, self.entries, strict=False)
        found = next(((a, e) for a, e in pairs if a.name == name and e.kind not in _PLAIN), None)
        return self._value(*found) if found else {}

    def _fill(self, name: str, value: dict[str, Any]) -> None:
        for one in value.get("list", [value]):
            if "tensor" in one:
                fill, bound = fills.fill_of(self.calls.operator, name, one["tensor"], self.values)
                one["tensor"].update({"fill": fill, "bound": bound} if bound else {"fill": fill})

    def _place(self) -> None:
        """Put on the CPU what was there: the source or target of a copy, and numbers in the place of a tensor."""
        tensors = [value["tensor"] for value in self.values.values() if "tensor" in value]
        kernel = self.calls.kernels[0] if self.calls.kernels else ""
        if self.calls.operator == "aten::copy_" and ("HtoD" in kernel or "DtoH" in kernel):
            tensors[1 if "HtoD" in kernel else 0]["cpu"] = True
        shaped = [tensor for tensor in tensors if tensor["shape"]]
        for one in tensors:
            number = not one["shape"] and one["dtype"] in ("float64", "int64")
            if number and shaped and all(other["dtype"] != one["dtype"] for other in shaped):
                one["cpu"] = True


def _gelu(kernels: Sequence[str]) -> str:
    """The approximation of GELU that a CUDA kernel computes: PyTorch's source has tanh first; "" for another kernel."""
    found = next((m for name in kernels if (m := _GELU.search(name))), None)
    return {"1": "tanh", "2": "none"}.get(found[1], "") if found else ""


def tensor_of(operator: str, name: str, entry: ArgumentRecord) -> dict[str, Any]:
    """The tensor that an entry describes, filled with normal numbers. Raises `NotRebuilt`."""
    dims, strides, dtype = entry.dims, entry.strides, _torch_dtype(entry.kind)
    if not isinstance(dims, list) or not all(isinstance(size, int) for size in dims):
        raise NotRebuilt(f"The trace has no shape of {name} of {operator}.", ELSE)
    if dtype not in dir(torch):
        raise NotRebuilt(f"{name} of {operator} has a type that PyTorch has no more: {dtype}.", ELSE)
    if isinstance(strides, list) and len(strides) != len(dims):
        raise NotRebuilt(f"{name} of {operator} is a sparse tensor, whose parts are not recorded.", ELSE)
    return {"tensor": {"shape": list(dims), "strides": strides, "dtype": dtype, "fill": "normal"}}


def _torch_dtype(recorded: str) -> str:
    name = dtype_name(recorded)
    return recorded.removeprefix("c10::").lower() if name == "fp8" else _TORCH.get(name, name)


def value_of(text: str, real: str = "") -> dict[str, Any]:
    """A number, truth value or list from its text, or the dtype, layout or memory format that a number means."""
    if text.startswith("["):
        return {"value": [_number(part.strip()) for part in text.strip("[]").split(",") if part.strip()]}
    value = _number(text)
    if isinstance(value, int) and not isinstance(value, bool):
        if "ScalarType" in real and 0 <= value < len(_SCALAR_TYPES):
            return {"dtype": _SCALAR_TYPES[value]}
        if "Layout" in real:
            return {"layout": "strided"}
        if "MemoryFormat" in real and 0 <= value < len(_FORMATS):
            return {"format": _FORMATS[value]}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"real": str(value)}
    return {"value": value}


def _number(text: str) -> int | float | bool:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError as error:
            raise NotRebuilt(f"The trace has an invalid number: {text[:40]!r}.", ELSE) from error
