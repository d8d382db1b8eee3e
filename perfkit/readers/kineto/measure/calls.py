"""Kinds of calls: operators with the same name, shapes, dtypes and scalars are parsed and costed once.

A launch of a generated Triton kernel is an operator called like the kernel, with the shapes of all tensors in and out
and the sizes of its loops, in the order: changed in place, inputs, outputs, sizes. The trace does not show which tensor
is which, so each counts once, the last one as written: a lower bound where a tensor is changed in place. A tensor
larger than the loops cannot be touched as a whole (a gather from an embedding table): it counts as many elements as
there are steps. Where a trace has no sizes, the tensors have to say them: see `_steps_by_tensors`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfkit.cost import Argument, Call, Cost, TensorSpec, recorded_call
from perfkit.cost.model import ITEM_BYTES
from perfkit.readers.kineto.decode.builder import decoded
from perfkit.readers.kineto.decode.events import HostEvents, Key

REAL = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "double": "fp64"}
_SHOWN = 4  # tensors of a list that the description names


@dataclass(frozen=True)
class KindOfCall:
    """Knowledge of every call of one kind: shapes as text, and its cost. None: unknown.

    `parts`: the GPU kernels that share this cost, by a pattern of their names, where it is known that they do.
    """

    shapes: str | None
    cost: Cost | None
    parts: Mapping[str, float] = field(default_factory=dict)


def call_of(key: Key, list_dtype: str, matmul_precision: str) -> Call:
    """Return the call of `key`; without arguments when none were recorded. `list_dtype` is that of lists of tensors."""
    name, *texts = key
    fields = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    arguments = {field: decoded(text) for field, text in zip(fields, texts, strict=True) if text}
    return recorded_call(name, arguments, list_dtype=list_dtype, matmul_precision=matmul_precision)


def arguments_of(host: HostEvents, event: int) -> tuple[Argument, ...]:
    """The recorded arguments of a host event; none where they were not kept."""
    code = int(host.call[event])
    return call_of(host.calls[code], "fp32", "fp32").arguments if code >= 0 else ()


def usual_dtype(kinds: Iterable[Key]) -> str:
    """The real dtype that most kinds of calls have, fp32 when none has one."""
    text = b"".join(key[2] for key in kinds)
    counts = {dtype: text.count(f'"{name}"'.encode()) for name, dtype in REAL.items()}
    return max(counts, key=lambda dtype: counts[dtype])


def describe(call: Call) -> str | None:
    """Shapes and dtypes of the tensor arguments as text, such as `fp32[256×768], fp32[768×768]`."""
    return ", ".join(text for a in call.arguments if (text := _words(a))) or None


def _words(argument: Argument) -> str:
    if isinstance(argument, TensorSpec):
        return f"{argument.dtype}[{'×'.join(map(str, argument.shape))}]"
    if not isinstance(argument, tuple):
        return ""
    tensors = [a for a in argument if isinstance(a, TensorSpec)]
    if not tensors:
        return ""
    more = f", … {len(tensors)} tensors" if len(tensors) > _SHOWN else ""
    return f"({', '.join(_words(t) for t in tensors[:_SHOWN])}{more})"


# Templates and user-written kernels visit elements more than once, or in ways that their sizes do not show.
_LOOPS = re.compile(r"^triton_(poi|red|per)_")
_POINTWISE = "triton_poi_"
_GATHERS = re.compile(r"embedding|index|gather")  # operators that read a part of a tensor


def is_triton(name: str) -> bool:
    """Return whether an operator of this name is a generated kernel's launch."""
    return name.startswith("triton_")


def triton_cost(call: Call) -> Cost | None:
    """The minimal bytes of the launch `call`; its FLOP are not known from shapes. None without recorded tensors, and
    where nothing bounds what it touches of them."""
    tensors = [a for a in call.arguments if isinstance(a, TensorSpec)]
    if not tensors or any(t.dtype not in ITEM_BYTES for t in tensors):
        return None
    steps = _steps(call)
    if steps is None and (steps := _steps_by_tensors(call.name, tensors)) is None:
        return None
    moved = [min(t.nbytes, steps * ITEM_BYTES[t.dtype]) for t in tensors]
    return Cost({}, float(sum(moved[:-1])), float(moved[-1]))


def _steps(call: Call) -> float | None:
    """Return how many elements the kernel's loops visit; None where its sizes are not recorded."""
    sizes = [a for a in call.arguments if isinstance(a, int) and not isinstance(a, bool)]
    if not sizes or not _LOOPS.match(call.name) or any(n < 0 for n in sizes):
        return None
    return float(math.prod(sizes))


def _steps_by_tensors(name: str, tensors: Sequence[TensorSpec]) -> float | None:
    """Return how many elements a kernel visits at most, by its tensors; None where they do not bound it.

    Loops over points are as long as an output. That is the last tensor, unless the kernel only changes the first in
    place. A larger one between them is read in part. Where the first is larger, it may be changed as a whole, or be
    read in part. Reductions read more than they write, so it takes the name of a gather to doubt that they read all.
    """
    last = tensors[-1].numel
    larger = [t.numel > last for t in tensors]
    if not any(larger) or not _LOOPS.match(name):
        return math.inf
    if name.startswith(_POINTWISE):
        return None if larger[0] else float(last)
    return None if _GATHERS.search(name) else math.inf
