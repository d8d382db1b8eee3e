"""Indexing: what is picked or touched is counted, never the whole tensor it is picked from.

`nonzero`, `masked_select` and a boolean index give a result whose size no shape gives: only what is certainly moved is
counted, so these are lower bounds. A trace does not record the index list of `index`: without it the cost is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.operators.embedding import rows_read
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import (
    axis,
    broadcast,
    dense,
    integer_at,
    movement,
    number_at,
    product,
    sums,
    tensor_at,
    vector_unit,
    work,
)


def index_select(call: Call) -> Cost:
    """index_select(x, dim, index (L)): min(L, size) rows read, L written."""
    x, place, index = call.tensor(0), integer_at(call, 1), call.tensor(2)
    place = axis(place, len(x.shape))
    out = [index.numel if i == place else s for i, s in enumerate(x.shape)]
    return movement((rows_read(x, index.numel, place), index), (dense(out, x.dtype),))


def gather(call: Call) -> Cost:
    """gather(x, dim, index) and take(x, index): one element an index."""
    x = call.tensor(0)
    index = tensor_at(call, 2) or call.tensor(1)
    picked = dense(index.shape, x.dtype)
    return movement((picked, index), (picked,))


def _once(x: TensorSpec, picked: TensorSpec) -> TensorSpec:
    """The elements of `x` that are picked, each once."""
    return picked if picked.numel <= x.numel else dense(x.shape, x.dtype)


def _index_list(call: Call) -> tuple[TensorSpec | None, ...]:
    given = call.arguments[1] if len(call.arguments) > 1 else None
    if not isinstance(given, tuple) or not given:
        raise TypeError("the profiler does not record lists of optional tensors")
    return tuple(i if isinstance(i, TensorSpec) else None for i in given)


def _indexed_shape(x: TensorSpec, indices: tuple[TensorSpec | None, ...]) -> tuple[int, ...]:
    """Shape of x[indices] up to the order of its dimensions; a boolean mask is not known to pick anything."""
    picks = [i for i in indices if i is not None]
    if any(i.dtype == "bool" for i in picks):
        return (0,)
    kept = [s for s, i in zip(x.shape, (*indices, *(None,) * len(x.shape)), strict=False) if i is None]
    return (*broadcast(i.shape for i in picks), *kept)


def index(call: Call) -> Cost:
    """index(x, list of optional index tensors): what is picked, but no element of x twice."""
    x, indices = call.tensor(0), _index_list(call)
    picked = dense(_indexed_shape(x, indices), x.dtype)
    return movement((_once(x, picked), *indices), (picked,))


def index_put(call: Call) -> Cost:
    """index_put_(x, indices, values, accumulate): what is put; from the values where the indices were not recorded."""
    x, values = call.tensor(0), call.tensor(2)
    try:
        indices = _index_list(call)
        target = dense(_indexed_shape(x, indices), x.dtype)
    except TypeError:
        # One value for many places says nothing about how many.
        if values.numel == 1:
            raise
        indices, target = (), dense(values.shape, x.dtype)
    accumulate, touched = bool(number_at(call, 3, 0)), _once(x, target)
    count = sums(x.dtype, target.numel if accumulate else 0)
    return work(count, (values, *indices, touched if accumulate else None), (touched,))


def scatter(adds: bool) -> Callable[[Call], Cost]:
    """scatter(x, dim, index, source or value[, reduce]): one element an index. Out of place x is copied first, by an
    operator of its own."""

    def cost(call: Call) -> Cost:
        x, indices, source = call.tensor(0), call.tensor(2), tensor_at(call, 3)
        touched = dense(indices.shape, x.dtype)
        read = [indices, dense(indices.shape, source.dtype) if source is not None else None]
        return work(sums(x.dtype, touched.numel * adds), [*read, touched if adds else None], (touched,))

    return cost


def index_add(adds: bool) -> Callable[[Call], Cost]:
    """index_add(x, dim, index (L), source), index_copy, index_fill: L rows touched. Out of place x is copied first, by
    an operator of its own."""

    def cost(call: Call) -> Cost:
        x, place, indices = call.tensor(0), integer_at(call, 1), call.tensor(2)
        source = tensor_at(call, 3)
        touched = rows_read(x, indices.numel, place)
        count = source.numel if adds and source is not None else 0
        return work(sums(x.dtype, count), [indices, source, touched if adds else None], (touched,))

    return cost


def nonzero(call: Call) -> Cost:
    """nonzero(x): one comparison an element; how many are found is not known."""
    x = call.tensor(0)
    return work({vector_unit(x.dtype): float(x.numel)}, (x,), ())


def masked_select(call: Call) -> Cost:
    """masked_select(x, mask): the mask is read; how much is picked is not known."""
    mask = call.tensor(1)
    return movement((mask,), ())


def one_hot(call: Call) -> Cost:
    """one_hot(index, classes): int64 of classes per index."""
    indices, classes = call.tensor(0), integer_at(call, 1)
    if classes < 0:
        raise ValueError("the number of classes depends on the data")
    return movement((indices,), (dense((*indices.shape, classes), "int64"),))


def _lengths(x: TensorSpec, along: int) -> tuple[int, float]:
    """Elements and log₂ of the length along the sorted axis (at least 1)."""
    size = x.shape[axis(along, len(x.shape))] if x.shape else 1
    return x.numel, max(1.0, math.log2(max(size, 1)))


def sort(call: Call) -> Cost:
    """sort(x, dim, …), sort.stable(x, stable, dim, …) and argsort: n·log₂(length) comparisons."""
    x = call.tensor(0)
    second = call.arguments[1] if len(call.arguments) > 1 else -1
    stable_form = second is None or isinstance(second, bool)
    n, depth = _lengths(x, int(number_at(call, 2 if stable_form else 1, -1)))
    out = [dense(x.shape, "int64")] if call.name.endswith("argsort") else [x, dense(x.shape, "int64")]
    return work({vector_unit(x.dtype): n * depth}, (x,), out)


def topk(call: Call) -> Cost:
    """topk(x, k, dim, …): one comparison an element, log₂k a result."""
    x, k = call.tensor(0), integer_at(call, 1)
    place = axis(int(number_at(call, 2, -1)), len(x.shape))
    shape = [k if i == place else s for i, s in enumerate(x.shape)]
    count = x.numel + product(shape) * max(0.0, math.log2(max(k, 1)))
    return work({vector_unit(x.dtype): float(count)}, (x,), (dense(shape, x.dtype), dense(shape, "int64")))


def unique(call: Call) -> Cost:
    """unique(x, …): a sort's comparisons; how many values remain is not known."""
    x = call.tensor(0)
    return work({vector_unit(x.dtype): x.numel * max(1.0, math.log2(max(x.numel, 1)))}, (x,), ())


def searchsorted(call: Call) -> Cost:
    """searchsorted(sorted, x) or bucketize(x, boundaries): log₂ comparisons an element."""
    first, second = call.tensor(0), call.tensor(1)
    x, edges = (first, second) if "bucketize" in call.name else (second, first)
    depth = math.ceil(math.log2(max(edges.shape[-1] if edges.shape else 1, 2)))
    return work({vector_unit(x.dtype): float(x.numel * depth)}, (x, edges), (dense(x.shape, "int64"),))


_PICKED = "what is picked (no element twice), indices; result"
_PUT = "indices, source (and the old values where they add); the elements touched (a copy is an operator of its own)"


def operators() -> list[Operator]:
    """Indexing, scattering and sorting."""
    family = "index"
    bound = "; the result's size depends on the data (lower bound)"
    return [
        *same("index_select", family, index_select, "0", "min(L, R) rows, indices; L rows"),
        *same("gather take", family, gather, "0", _PICKED),
        *same("index _unsafe_index", family, index, "0", _PICKED + "; unknown from a trace without the index list",
              delegates=("index",)),
        *same("index_put_ _index_put_impl_ index_put _unsafe_index_put", family, index_put,
              "1 an element where it accumulates", _PUT, delegates=("_index_put_impl_", "masked_fill_", "index_put_")),
        *same("scatter_ scatter", family, scatter(False), "0", _PUT),
        *same("scatter_add_ scatter_reduce_ scatter_add scatter_reduce", family, scatter(True), "1 an index", _PUT,
              delegates=("scatter_add_",)),
        *same("index_add_ index_add", family, index_add(True), "1 an element of the source", _PUT,
              delegates=("scatter_add_",)),
        *same("index_copy_ index_fill_ index_copy index_fill", family, index_add(False), "0", _PUT,
              delegates=("index_fill_",)),
        *same("nonzero", family, nonzero, "1 an element", "input" + bound),
        *same("masked_select", family, masked_select, "0", "mask" + bound),
        *same("one_hot", family, one_hot, "0", "indices; classes per index (int64)", kind="dispatch"),
        *same("sort argsort msort", "sort", sort, "n·log₂(length)", "input; values and int64 indices",
              delegates=("sort",)),
        *same("topk", "sort", topk, "1 an element + log₂k a result", "input; k values and int64 indices"),
        *same("_unique _unique2 unique_dim unique_consecutive", "sort", unique, "n·log₂n", "input" + bound),
        *same("searchsorted bucketize", "sort", searchsorted, "⌈log₂(edges)⌉ an element", "both; int64 positions"),
    ]  # fmt: skip
