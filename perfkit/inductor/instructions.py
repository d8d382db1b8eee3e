"""Estimate the instructions that the loops of a generated GPU kernel issue, from their bodies.

FLOP do not say how long arithmetic keeps a GPU: an exponential is one, and takes nine instructions. `ISSUED` holds
what one operation takes in the machine code that Triton 3.7 makes for capability 9.0 (counted in its disassembly: a
kernel with the operation less one without). Reciprocals, roots and powers of two go through a unit that has an eighth
of the width of the one for adds: they count eight where they take fewer instructions.

An access whose rows do not start at a multiple of eight elements is made element by element: the access, its 64-bit
address, its mask and the conversion are about ten instructions. Else these are shared by the elements of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfkit.inductor.loops import LoopOperation, operations_of

ISSUED = {
    "exp": 9, "libdevice_exp": 9, "exp2": 8, "expm1": 26, "log": 25, "log2": 25, "log10": 27, "log1p": 30,
    "tanh": 22, "erf": 28, "sigmoid": 16, "truediv": 8, "reciprocal": 8, "sqrt": 8, "libdevice_sqrt": 8, "rsqrt": 8,
    "pow": 118, "sin": 81, "cos": 81, "atan": 54, "lgamma": 211, "maximum": 3, "minimum": 3,
    "neg": 0, "abs": 0,
}  # fmt: skip
# Into the sum of a loop: the operation, and the choice by the mask of the loop's last iteration.
_REDUCED = {"max": 4, "min": 4, "welford_reduce": 14, "welford_combine": 20, "online_softmax_reduce": 29}
_SUMMED = 2
# Passes of a block that holds whole rows: their maximum, then the sum of exponentials, which later operations of the
# block find computed.
_ONLINE = "online_softmax_reduce"
_IN_A_WHOLE_ROW, _EXPONENTIALS = _REDUCED["max"] + _SUMMED, 1 + ISSUED["exp"]
_FREE = frozenset({
    "constant", "to_dtype", "to_dtype_bitcast", "identity", "output", "get_index", "index_expr", "masked",
    "indirect_indexing", "check_bounds", "load_seed", "partial_accumulate", "set_indirect",
})  # fmt: skip
_BY_ELEMENT, _IN_A_VECTOR = 10, 2
_VECTOR = 8  # elements of two bytes in the 16 that one access moves at most
_WIDE = ("int64", "fp64")  # two instructions for each of 32 bits


def instructions_of(leaves: Sequence[Any], graph: Any, whole_rows: bool = False) -> float:
    """Instructions that loop nests issue, each element's counted as one lane of a multiply-add; with `whole_rows` those
    of a block that holds the rows which it reduces."""
    found = [(one, _sizes(leaf)) for leaf in leaves for one in operations_of(leaf, graph)]
    has_exponentials = any("exp" in one.name for one, _ in found)
    online = _IN_A_WHOLE_ROW + (0 if has_exponentials else _EXPONENTIALS) if whole_rows else _REDUCED[_ONLINE]
    return sum(_issued(one, sizes, online) * one.times for one, sizes in found)


def _sizes(leaf: Any) -> dict[Any, int]:
    return {variable: int(size) for variable, size in leaf._body.var_ranges.items()}


def _issued(one: LoopOperation, sizes: dict[Any, int], online: int) -> int:
    if one.name == "reduction" and str(one.settings[2]) == _ONLINE:
        return online
    if one.name in ("load", "store", "store_reduction"):
        return _IN_A_VECTOR if one.index is None or _aligned(one.index, sizes) else _BY_ELEMENT
    if one.name in _FREE:
        return 0
    if one.name == "reduction":
        return _REDUCED.get(str(one.settings[2]), _SUMMED)
    return ISSUED.get(one.name, 2 if any(dtype in _WIDE for dtype in one.operands) else 1)


def _aligned(index: Any, sizes: dict[Any, int]) -> bool:
    """Return whether every row of an access starts at a multiple of a vector: one element after the other in whole
    vectors, and all other strides multiples of it."""
    terms = [term.as_coeff_Mul() for term in getattr(index, "as_ordered_terms", list)()]
    near = [rest for stride, rest in terms if stride % _VECTOR]
    if not getattr(index, "free_symbols", ()):
        return True  # one value for all
    return len(near) == 1 and (1, near[0]) in terms and _stretch(near[0], sizes) % _VECTOR == 0


def _stretch(term: Any, sizes: dict[Any, int]) -> int:
    """Count the consecutive elements along a variable of stride 1, or the remainder of one; 1: unknown."""
    if term in sizes:
        return sizes[term]
    found: tuple[Any, ...] = getattr(term, "args", ())
    return int(found[2]) if type(term).__name__ == "ModularIndexing" and found[1] == 1 else 1
