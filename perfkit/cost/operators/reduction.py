"""Reductions and scans: a count per input element and per output element; everything read once."""

from __future__ import annotations

from collections.abc import Callable

from perfkit.cost.model import Argument, Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import (
    UNRECORDED,
    axis,
    dense,
    dtype_at,
    floating,
    integer_at,
    is_complex,
    number_at,
    part,
    product,
    tensor_at,
    vector_unit,
    work,
)


def reduced_shape(x: TensorSpec, dims: Argument, keep: bool) -> tuple[int, ...]:
    """Shape after reducing `dims` (None or an empty list: all). Raises `TypeError` where they were not recorded."""
    if dims is None or dims == ():
        places = set(range(len(x.shape)))
    elif isinstance(dims, int):
        places = {axis(dims, len(x.shape))}
    elif isinstance(dims, tuple):
        places = {axis(d, len(x.shape)) for d in dims if isinstance(d, int)}
    else:
        raise TypeError("the reduced dimensions were not recorded")
    if keep:
        return tuple(1 if i in places else size for i, size in enumerate(x.shape))
    return tuple(size for i, size in enumerate(x.shape) if i not in places)


def _argument(call: Call, index: int) -> Argument:
    return call.arguments[index] if index < len(call.arguments) else None


def _list_dims(call: Call) -> tuple[Argument, bool]:
    """op(x, dims list, keepdim, …); a bare integer at 1 is the dtype of op(x, dtype)."""
    dims = _argument(call, 1)
    if dims == UNRECORDED:
        raise TypeError("the reduced dimensions were not recorded")
    return (dims if isinstance(dims, tuple) else None), bool(number_at(call, 2, 0))


def _one_dim(call: Call) -> tuple[Argument, bool]:
    """op(x) over everything, or op(x, dim, keepdim)."""
    return _argument(call, 1), bool(number_at(call, 2, 0))


def _variance_dims(call: Call) -> tuple[Argument, bool]:
    """var(x, unbiased) or var(x, dims, correction, keepdim)."""
    dims = _argument(call, 1)
    return (None if isinstance(dims, bool) else dims), bool(number_at(call, 3, 0))


def _norm_dims(call: Call) -> tuple[Argument, bool]:
    """norm(x, order, dims, keepdim, …)."""
    return _argument(call, 2), bool(number_at(call, 3, 0))


Dims = Callable[[Call], tuple[Argument, bool]]


def reduction(
    dims: Dims, per_element: int, per_output: int = 0, results: tuple[str, ...] = ("same",), parts: int = 0
) -> Callable[[Call], Cost]:
    """Cost of a reduction; `results` are the dtypes of its outputs: same, sum (bool and integers give int64), real,
    or a dtype. Of complex elements it counts `parts` times as much; 0: it has no cost there."""

    def cost(call: Call) -> Cost:
        x = call.tensor(0)
        shape = reduced_shape(x, *dims(call))
        out = [dense(shape, _result_dtype(r, x.dtype)) for r in results]
        count = per_element * x.numel + per_output * product(shape)
        if not is_complex(x.dtype):
            return work({vector_unit(x.dtype): float(count)}, (x,), out)
        if not parts:
            raise ValueError(f"{call.name}: no count for {x.dtype}")
        return work({vector_unit(part(x.dtype)): float(count * parts)}, (x,), out)

    return cost


def _result_dtype(rule: str, dtype: str) -> str:
    if rule == "sum":
        return "int64" if floating(dtype) != dtype else dtype
    return {"same": dtype, "real": floating(dtype)}.get(rule, rule)


def maximum(call: Call) -> Cost:
    """max(x), max(x, dim, keepdim) with indices, or max(x, other) (dispatch to maximum)."""
    if tensor_at(call, 1) is not None:
        raise ValueError("the elementwise form")
    results = ("same", "int64") if isinstance(_argument(call, 1), int) else ("same",)
    return reduction(_one_dim, 1, 0, results)(call)


def norm(call: Call) -> Cost:
    """norm(x, order, dims, …): square and add (2 an element) and a root; 1 an element for orders 0 and ∞."""
    order = number_at(call, 1, 2.0)
    simple = order in (0, float("inf"), float("-inf"))
    return reduction(_norm_dims, 1 if simple else 2, 0 if simple else 1, ("real",))(call)


def scan(results: tuple[str, ...]) -> Callable[[Call], Cost]:
    """cumsum and its like (x, dim, …): one operation an element, the result has the input's shape."""

    def cost(call: Call) -> Cost:
        x = call.tensor(0)
        dtypes = [_result_dtype(r, x.dtype) for r in results]
        if len(results) == 1:
            dtypes = [dtype_at(call, 2, dtypes[0])]
        return work({vector_unit(x.dtype): float(x.numel)}, (x,), [dense(x.shape, d) for d in dtypes])

    return cost


def cdist(call: Call) -> Cost:
    """_cdist_forward(a (…,P,M), b (…,R,M), p, …): subtract, power, add per element of each pair, a root a pair."""
    a, b = call.tensor(0), call.tensor(1)
    out = dense((*a.shape[:-1], b.shape[-2]), a.dtype)
    return work({vector_unit(a.dtype): float(out.numel * (3 * a.shape[-1] + 1))}, (a, b), (out,))


def equal(call: Call) -> Cost:
    """equal(a, b): one comparison an element."""
    a = call.tensor(0)
    return work({vector_unit(a.dtype): float(a.numel)}, (a, call.tensor(1)), (dense((), "bool"),))


def bincount(call: Call) -> Cost:
    """bincount(x, weights, minlength) and histograms: one addition an element; at least `minlength` bins."""
    x = call.tensor(0)
    bins = integer_at(call, 2) if isinstance(_argument(call, 2), int) else 0
    return work({"vector_int": float(x.numel)}, (x, tensor_at(call, 1)), (dense((bins,), "int64"),))


_IO = "input; each result"


def operators() -> list[Operator]:
    """Every reduction and scan."""
    family = "reduction"

    def fold(
        names: str, dims: Dims, text: str, each: int, last: int = 0, results: tuple[str, ...] = ("same",),
        delegates: tuple[str, ...] = (), parts: int = 0,
    ) -> list[Operator]:  # fmt: skip
        return same(names, family, reduction(dims, each, last, results, parts), text, _IO, delegates=delegates)

    variance = "4 an element (sum, x−µ, square, sum), 2 an output (two divisions)"
    return [
        *fold("sum", _list_dims, "1 an element; complex 2", 1, 0, ("sum",), parts=2),
        *fold("nansum", _list_dims, "1 an element", 1, 0, ("sum",)),
        *fold("mean", _list_dims, "1 an element, 1 an output; complex twice that", 1, 1, ("real",), delegates=("sum",),
              parts=2),
        *fold("prod", _one_dim, "1 an element", 1, 0, ("sum",)),
        *fold("amax amin", _list_dims, "1 an element", 1),
        *fold("argmax argmin", _one_dim, "1 an element", 1, 0, ("int64",)),
        *fold("any all", _one_dim, "1 an element", 1, 0, ("bool",)),
        *fold("count_nonzero", _list_dims, "1 an element", 1, 0, ("int64",), delegates=("sum",)),
        *fold("mode median kthvalue", _one_dim, "1 an element (at least)", 1, 0, ("same", "int64")),
        *fold("aminmax", _one_dim, "2 an element", 2, 0, ("same", "same")),
        *fold("logsumexp", _list_dims, "4 an element (max, subtract, exp, sum), 2 an output (log, add)", 4, 2,
              ("real",), delegates=("sum",)),
        *fold("var", _variance_dims, variance, 4, 2, ("real",)),
        *fold("std", _variance_dims, variance.replace("2 an output (two divisions)", "3 an output (and √)"), 4, 3,
              ("real",)),
        *fold("var_mean", _variance_dims, variance, 4, 2, ("real", "real")),
        *fold("std_mean", _variance_dims, variance.replace("2 an output (two divisions)", "3 an output (and √)"), 4, 3,
              ("real", "real")),
        *same("max min", family, maximum, "1 an element", _IO, delegates=("maximum", "minimum", "amax", "amin")),
        *same("norm linalg_vector_norm", family, norm, "2 an element (square, add), 1 √ an output; orders 0, ±∞: 1",
              _IO, delegates=("linalg_vector_norm",)),
        *same("cumsum cumprod logcumsumexp cumsum_ cumprod_", family, scan(("sum",)), "1 an element", _IO),
        *same("cummax cummin _cummax_helper _cummin_helper", family, scan(("same", "int64")), "1 an element", _IO,
              delegates=("_cummax_helper", "_cummin_helper")),
        *same("_cdist_forward", family, cdist, "3·M + 1 a pair of M-vectors", "both sets; distances",
              delegates=("_euclidean_dist",)),
        *same("equal", family, equal, "1 an element", "both tensors; one bool"),
        *same("bincount histc", family, bincount, "1 an element", "input, weights; `minlength` bins"),
    ]  # fmt: skip
