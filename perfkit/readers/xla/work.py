"""FLOP, minimal bytes and family of an operation of XLA, from the HLO module that a profile holds.

FLOP are those of products and convolutions, inside fusions too: twice the elements of the result times those that each
sums over. Bytes are each operand once and the result, and unknown where an operation may touch only a part of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from perfkit.cost.model import ITEM_BYTES
from perfkit.readers.xla.hlo import HloInstruction, Module, Tensor, elements
from perfkit.table import RESOURCES

_PRODUCTS = ("gemm", "matmul", "dot", "conv")  # in the target of a custom call
_PARTLY = {
    "dynamic-slice", "dynamic-update-slice", "gather", "scatter", "slice", "while", "conditional", "call", "sort",
    "reduce-window", "select-and-scatter", "infeed", "outfeed", "rng-get-and-update-state",
}  # fmt: skip
# Families by the opcodes of XLA, the most telling first. What is in none is elementwise.
_FAMILIES = {
    "collective": "all-reduce all-gather reduce-scatter all-to-all collective-permute collective-broadcast "
    "all-reduce-start all-gather-start collective-permute-start",
    "convolution": "convolution",
    "matmul": "dot",
    "linalg": "cholesky triangular-solve",
    "fft": "fft",
    "sort": "sort topk",
    "random": "rng rng-bit-generator rng-get-and-update-state",
    "index": "gather scatter dynamic-slice dynamic-update-slice",
    "reduction": "reduce reduce-window select-and-scatter",
}  # fmt: skip
_FAMILY_OF = {opcode: family for family, opcodes in _FAMILIES.items() for opcode in opcodes.split()}
_MOVES = {
    "copy", "transpose", "bitcast", "reshape", "concatenate", "slice", "pad", "reverse", "broadcast", "convert",
    "parameter", "constant", "tuple", "get-tuple-element", "fusion", "copy-start", "copy-done", "iota",
    "bitcast-convert",
}  # fmt: skip
_OPAQUE = ("custom-call", "call", "while", "conditional", "")


class XlaWork(NamedTuple):
    """FLOP by unit, None where unknown; bytes read and written, NaN where unknown."""

    flop: dict[str, float] | None
    read: float
    written: float


def family_of(one: HloInstruction, module: Module) -> str | None:
    """Return the family of an operation that XLA made itself; None where the kernel's name says more."""
    if one.opcode in _OPAQUE:
        return None
    inside = {inner.opcode for inner in module.inside(one)}
    found = next((family for opcode, family in _FAMILY_OF.items() if opcode in inside), None)
    return found or ("copy" if inside <= _MOVES else "elementwise")


def work_of(one: HloInstruction, module: Module) -> XlaWork:
    """Return what an operation has to compute, to read and to write."""
    read, written = _traffic(one, module)
    return XlaWork(_flop(one, module), read, written)


def _flop(one: HloInstruction, module: Module) -> dict[str, float] | None:
    total: dict[str, float] = {}
    products = 0
    for inner in module.inside(one):
        if inner.opcode in ("while", "conditional"):
            return None
        if inner.contracted is None and inner.output_feature is None:
            if inner.opcode == "custom-call":  # a library's function of unknown work
                return None
            continue
        products += 1
        unit, flop = _product(inner, module)
        if unit is None or inner.dilated:
            return None
        total[unit] = total.get(unit, 0.0) + flop
    return total if products else None


def _product(one: HloInstruction, module: Module) -> tuple[str | None, float]:
    """Unit and FLOP of a product or convolution; no unit where they are unknown."""
    operands = [module.by_number[n].tensors for n in one.operands[:2] if n in module.by_number]
    if len(operands) < 2 or not one.tensors or not all(operands):
        return None, math.nan
    left, right, result = operands[0][0], operands[1][0], one.tensors[0]
    unit = f"matrix_{left.dtype}"
    if unit not in RESOURCES or left.dtype != right.dtype:
        return None, math.nan
    if one.output_feature is not None:
        return unit, _convolution(one, left, right, result)
    if any(not 0 <= i < len(left.shape) for i in one.contracted or ()):
        return None, math.nan
    return unit, 2.0 * elements(result) * math.prod(left.shape[i] for i in one.contracted or ())


def _convolution(one: HloInstruction, left: Tensor, right: Tensor, result: Tensor) -> float:
    """FLOP of a convolution; of its gradients too, whose custom call has the operands of the forward convolution."""
    data, kernel = {"F": (right, result), "I": (left, right)}.get(_gradient(one), (result, right))
    features = kernel.shape[one.output_feature or 0] if (one.output_feature or 0) < len(kernel.shape) else 0
    return 2.0 * elements(data) * elements(kernel) / features if features else math.nan


def _gradient(one: HloInstruction) -> str:
    """F, I: a convolution that a library computes backward, towards its filter or its input."""
    return "F" if one.target.endswith("BackwardFilter") else "I" if one.target.endswith("BackwardInput") else ""


def _traffic(one: HloInstruction, module: Module) -> tuple[float, float]:
    inside = list(module.inside(one))
    known = one.opcode != "custom-call" or any(word in one.target for word in _PRODUCTS)
    if not known or any(inner.opcode in _PARTLY for inner in inside):
        return math.nan, math.nan
    given = [module.by_number[n] for n in one.operands if n in module.by_number]
    operands = {_source(operand, module).number: operand for operand in given}
    results = one.tensors[:1] if one.opcode == "custom-call" else one.tensors  # of a library's the rest is room to work
    return _bytes(t for operand in operands.values() for t in operand.tensors), _bytes(results)


def _source(one: HloInstruction, module: Module) -> HloInstruction:
    """The instruction whose memory a bitcast shows in another shape."""
    seen = 0
    while one.opcode == "bitcast" and one.operands and seen < len(module.by_number):
        one, seen = module.by_number.get(one.operands[0], one), seen + 1
    return one


def _bytes(tensors: Iterator[Tensor] | list[Tensor]) -> float:
    return sum(float(elements(t) * ITEM_BYTES[t.dtype]) if t.dtype else math.nan for t in tensors)
