"""Elementwise operators: one count per output element, every operand read once, the result written once.

`FORMULAS` states each count with the operations that make it up; the docs table and the cost functions come from it.
A select (where, masked_fill) counts 1 like a comparison. A 0-d operand next to a dimensioned one is a number held in a
register: it moves no bytes (in a trace it looks like a Python number anyway).

A complex element counts the operations on its parts; a formula without such a count has no cost there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from perfkit.cost.model import Call, Cost, CostFunction, TensorSpec
from perfkit.cost.registry import Operator
from perfkit.cost.shapes import (
    broadcast,
    dense,
    floating,
    is_complex,
    number_at,
    part,
    product,
    promote,
    tensor_at,
    vector_unit,
    work,
)

Count = int | Callable[[Call], int]


@dataclass(frozen=True)
class Formula:
    """Operations per output element: `operands` leading tensor or number arguments, `count`, and what makes it up.

    `result`: "same" (promoted dtype), "bool", "real" (integers become fp32), "part" (a real number of a complex one) or
    "complex". The operands in the range `typed` decide the dtype (all by default); a mask does not. `square`: the last
    two operands, where they look alike, may be one tensor (Adam's g·g), and minimal bytes count it once. `of_complex`:
    operations on real numbers for a complex element; None where they are not counted.
    """

    operands: int
    count: Count
    text: str
    result: str = "same"
    typed: tuple[int, int] = (0, 9)
    delegates: tuple[str, ...] = ()
    square: bool = False
    of_complex: Count | None = None


def elementwise(formula: Formula, in_place: bool = False) -> CostFunction:
    """The cost function of `formula`; in place reads and writes its first operand, else the result is written.

    Further tensor arguments after the operands are `out=`.
    """

    def cost(call: Call) -> Cost:
        operands = call.arguments[: formula.operands]
        inputs = [a for a in operands if isinstance(a, TensorSpec)]
        out = next((a for a in call.arguments[formula.operands :] if isinstance(a, TensorSpec)), None)
        shape = call.tensor(0).shape if in_place else broadcast(t.shape for t in inputs)
        dtype = promote(operands[slice(*formula.typed)])
        if formula.result == "real":
            dtype = floating(dtype)
        count = _count(formula, dtype, call)
        read = [t for t in inputs if t.shape or not shape]
        if formula.square and len(read) == formula.operands and read[-1] == read[-2]:
            read.pop()
        written = call.tensor(0) if in_place else dense(shape, _result_dtype(formula, dtype, out))
        return work({vector_unit(part(dtype)): float(count * product(shape))}, read, [written])

    return cost


def _count(formula: Formula, dtype: str, call: Call) -> int:
    """Operations an element; raises `ValueError` for complex elements that `formula` does not count."""
    count = formula.of_complex if is_complex(dtype) else formula.count
    if count is None:
        raise ValueError(f"{call.name}: no count for {dtype}")
    return count if isinstance(count, int) else count(call)


def _result_dtype(formula: Formula, dtype: str, out: TensorSpec | None) -> str:
    if out is not None:
        return out.dtype
    results = {"bool": "bool", "part": part(dtype), "complex": {"fp64": "complex128"}.get(dtype, "complex64")}
    return results.get(formula.result, dtype)


def _with_alpha(call: Call) -> int:
    return 1 if number_at(call, 2, 1.0) == 1 else 2


def _with_value(call: Call) -> int:
    return 2 if number_at(call, 3, 1.0) == 1 else 3


def _complex(call: Call) -> list[bool]:
    """Which of the first two operands are complex tensors; a complex number in a trace is taken as a real one."""
    return [is_complex(t.dtype) for t in (tensor_at(call, 0), tensor_at(call, 1)) if t is not None]


def _complex_sum(call: Call) -> int:
    return (1 + all(_complex(call))) * _with_alpha(call)


def _complex_product(call: Call) -> int:
    return 6 if _complex(call) == [True, True] else 2


def _complex_quotient(call: Call) -> int:
    return 11 if _complex(call)[1:] == [True] else 2


def _clamp(call: Call) -> int:
    return max(1, sum(a is not None for a in call.arguments[1:3]))


def _gelu(index: int, exact: int, tanh: int) -> Callable[[Call], int]:
    """GELU's two forms; a trace does not record the string, so a missing one (None) is taken as the tanh form."""

    def count(call: Call) -> int:
        given = call.arguments[index] if index < len(call.arguments) else "none"
        return exact if given == "none" else tanh

    return count


_GELU_FORWARD = (
    "tanh form 9 (x·x, ·x, ·0.044715, +x, ·√(2/π), tanh, 1+, ·x, ·½), exact form 5 (·1/√2, erf, 1+, ·x, ·½); "
    "the tanh form where the trace does not say"
)
_GELU_BACKWARD = (
    "tanh form 18 (inner 5, tanh, left ½(1+t) 2, 1−t² 2, inner' 3, right 3, sum, ·grad), exact form 11 (cdf 4, pdf 4, "
    "x·pdf, sum, ·grad); the tanh form where the trace does not say"
)


def _each(names: str, formula: Formula) -> dict[str, Formula]:
    return dict.fromkeys(names.split(), formula)


_UNARY = {
    "exp": Formula(1, 1, "1 function; complex 5 (exp, cos, sin, two products)", "real", of_complex=5),
    **_each(
        "exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh tanh erf erfc "
        "erfinv lgamma digamma reciprocal",
        Formula(1, 1, "1 function", "real"),
    ),
    **_each(
        "sign sgn floor ceil round trunc square relu clamp_min clamp_max bitwise_not",
        Formula(1, 1, "1", delegates=("pow", "clamp_min")),
    ),
    "neg": Formula(1, 1, "1; complex 2", of_complex=2),
    "abs": Formula(1, 1, "1; complex 4 (two squares, sum, √)", "part", of_complex=4),
    "angle": Formula(1, 1, "1 (compare; complex: atan2)", "part", of_complex=1),
    **_each("conj_physical _conj_physical", Formula(1, 1, "1 (negate the imaginary part)", of_complex=1)),
    "isnan": Formula(1, 1, "1", "bool", delegates=("ne",)),
    **_each("logical_not isposinf isneginf signbit", Formula(1, 1, "1", "bool")),
    "rsqrt": Formula(1, 2, "2 (√, divide)", "real"),
    "sigmoid": Formula(1, 4, "4 (negate, exp, 1+, divide)", "real"),
    "silu": Formula(1, 5, "5 (sigmoid 4, ·x)"),
    "gelu": Formula(1, _gelu(1, 5, 9), _GELU_FORWARD),
    "mish": Formula(1, 4, "4 (exp, log1p, tanh, ·x)"),
    "leaky_relu": Formula(1, 2, "2 (compare, multiply)"),
    "elu": Formula(1, 3, "3 (compare, expm1, multiply)"),
    "hardtanh": Formula(1, 2, "2 (min, max)", delegates=("clamp",)),
    "hardsigmoid": Formula(1, 4, "4 (+3, min, max, ÷6)"),
    "hardswish": Formula(1, 5, "5 (+3, min, max, ·x, ÷6)"),
    "softplus": Formula(1, 3, "3 (exp, log1p, compare)"),
    "log_sigmoid_forward": Formula(1, 6, "6 (min, |x|, negate, exp, log1p, subtract)"),
    "frac": Formula(1, 2, "2 (trunc, subtract)"),
    "nan_to_num": Formula(1, 3, "3 selects"),
    **_each("tril triu", Formula(1, 2, "2 (compare positions, select)")),
    "elu_backward": Formula(6, 4, "4 (compare, exp, two products)"),
    "threshold": Formula(1, 2, "2 (compare, select)"),
}

_SUM = Formula(2, _with_alpha, "1, or 2 where alpha ≠ 1; complex twice that", of_complex=_complex_sum)
_BINARY = {
    **_each("add sub", _SUM),
    "rsub": replace(_SUM, delegates=("sub",)),
    "mul": Formula(2, 1, "1; complex 6, with a real one 2", of_complex=_complex_product),
    "polar": Formula(2, 4, "4 (cos, sin, two products)", "complex"),
    "complex": Formula(2, 0, "0", "complex"),
    **_each(
        "maximum minimum fmax fmin remainder fmod floor_divide bitwise_and bitwise_or bitwise_xor "
        "bitwise_left_shift bitwise_right_shift copysign",
        Formula(2, 1, "1"),
    ),
    "div": Formula(2, 1, "1; complex 11, by a real one 2", "real", of_complex=_complex_quotient),
    "true_divide": Formula(2, 1, "1", "real", delegates=("div",)),
    "pow": Formula(2, 1, "1 function; a power of 0 or 1 is a fill or a copy"),
    **_each("atan2 logaddexp", Formula(2, 1, "1 function", "real")),
    "hypot": Formula(2, 4, "4 (two squares, sum, √)"),
    "xlogy": Formula(2, 2, "2 (log, multiply)", "real"),
    **_each("prelu _prelu_kernel", Formula(2, 2, "2 (compare, multiply)", delegates=("_prelu_kernel",))),
    **_each("eq ne", Formula(2, 1, "1; complex 3 (two comparisons, and)", "bool", of_complex=3)),
    **_each("lt le gt ge logical_and logical_or logical_xor", Formula(2, 1, "1", "bool")),
    "sigmoid_backward": Formula(2, 3, "3 (1−y, ·y, ·grad)"),
    "tanh_backward": Formula(2, 3, "3 (y², 1−, ·grad)"),
    "threshold_backward": Formula(2, 2, "2 (compare, select)"),
    "silu_backward": Formula(2, 9, "9 (sigmoid s 4, 1−s, ·x, 1+, ·s, ·grad)"),
    "gelu_backward": Formula(2, _gelu(2, 11, 18), _GELU_BACKWARD),
    "leaky_relu_backward": Formula(2, 2, "2 (compare, multiply)"),
    "hardtanh_backward": Formula(2, 3, "3 (two comparisons, select)"),
    "hardsigmoid_backward": Formula(2, 4, "4 (two comparisons, ÷6, select)"),
    "hardswish_backward": Formula(2, 6, "6 (two comparisons, ÷3, +½, ·grad, select)"),
    "softplus_backward": Formula(2, 5, "5 (exp, 1+, divide, ·grad, compare)"),
    "log_sigmoid_backward": Formula(2, 7, "7 (compare, |x|, negate, exp, 1+, divide, ·grad)"),
    "mish_backward": Formula(2, 13, "13 (sigmoid 4, tanh(softplus) t 3, 1−t² 2, ·x·s 2, +t, ·grad)"),
    "native_dropout_backward": Formula(2, 2, "2 (·mask, ·scale)", typed=(0, 1), delegates=("mul",)),
}

_TERNARY = {
    "where": Formula(3, 1, "1 select", typed=(1, 3), of_complex=1),
    "masked_fill": Formula(3, 1, "1 select", typed=(0, 1), delegates=("masked_fill_",), of_complex=1),
    "clamp": Formula(3, _clamp, "1 a bound"),
    "addcdiv": Formula(3, _with_value, "2, or 3 where value ≠ 1"),
    "addcmul": Formula(3, _with_value, "2, or 3 where value ≠ 1", square=True),
    "lerp": Formula(3, 3, "3 (subtract, ·weight, add)"),
}

FORMULAS: dict[str, Formula] = {**_UNARY, **_BINARY, **_TERNARY}

# Operators whose in-place form is not the name with an underscore at the end.
_NO_IN_PLACE = {"where", "log_sigmoid_forward", "maximum", "minimum", "fmax", "fmin", "angle", "polar", "complex"}
_SYMBOLS = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}

_TRAFFIC = "each operand once; result once"
_SQUARED = "each operand once, two alike factors as one (g·g); result once"


def operators() -> list[Operator]:
    """Every elementwise operator, its in-place form included."""
    found = []
    for name, formula in FORMULAS.items():
        found.append(_operator(name, formula, in_place=False))
        if name not in _NO_IN_PLACE and not name.endswith("_backward"):
            found.append(_operator(f"{name}_", formula, in_place=True))
    for symbol, base in _SYMBOLS.items():
        formula = replace(FORMULAS[base], delegates=(base,))
        found.append(_operator(f"__{symbol}__", formula, in_place=False))
        found.append(_operator(f"__i{symbol}__", formula, in_place=True))
    return found


def _power(cost: CostFunction) -> CostFunction:
    """pow(x, exponent): a power of 0 or 1 does nothing itself, the fill or the copy that it calls is a call of its own
    (the derivative of a square is such a power)."""

    def of(call: Call) -> Cost:
        exponent = call.arguments[1] if len(call.arguments) > 1 else None
        if isinstance(exponent, int | float) and exponent in (0, 1):
            return work({vector_unit(part(call.tensor(0).dtype)): 0.0}, (), ())
        return cost(call)

    return of


def _operator(name: str, formula: Formula, in_place: bool) -> Operator:
    # An in-place form may call its own like (`square_` → `pow_`) or the form that is not in place.
    called = {name.removesuffix("_") if in_place and not name.endswith("__") else name, *formula.delegates}
    called |= {f"{other.removesuffix('_')}_" for other in formula.delegates} if in_place else set()
    delegates = [f"aten::{other}" for other in sorted(called - {name})]
    cost = elementwise(formula, in_place)
    if name in ("pow", "pow_"):
        cost = _power(cost)
    text = f"per element: {formula.text}"
    traffic = _SQUARED if formula.square else _TRAFFIC
    return Operator(f"aten::{name}", "work", "elementwise", cost, text, traffic, tuple(delegates))
