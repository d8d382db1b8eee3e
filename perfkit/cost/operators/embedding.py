"""Embeddings: rows, never tables.

L lookups, R rows of the table, D row length. A lookup reads its row; as no more distinct rows than the table has can be
read, rows count min(L, R). Gradients add L rows into the table's gradient; zeroing that is an operator of its own. Of
a sparse gradient only the L rows exist, and `_coalesce` adds up those of the same index.
"""

from __future__ import annotations

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import axis, dense, integer_at, number_at, product, tensor_at, vector_unit, work

# Modes of an embedding bag.
_SUM, _MEAN, _MAX = 0, 1, 2


def rows_read(table: TensorSpec, lookups: int, along: int = 0) -> TensorSpec:
    """The distinct part of `table` that `lookups` along an axis read at most."""
    place = axis(along, len(table.shape))
    return dense([min(lookups, s) if i == place else s for i, s in enumerate(table.shape)], table.dtype)


def _gathered(table: TensorSpec, indices: TensorSpec) -> Cost:
    row = table.shape[1:]
    out = dense((*indices.shape, *row), table.dtype)
    return work({vector_unit(table.dtype): 0.0}, (rows_read(table, indices.numel), indices), (out,))


def embedding(call: Call) -> Cost:
    """embedding(table (R,D), indices, …)."""
    return _gathered(call.tensor(0), call.tensor(1))


def embedding_backward(call: Call) -> Cost:
    """embedding_dense_backward(grad (…,D), indices, R, …): L rows added into min(L, R) rows of the gradient."""
    grad, indices = call.tensor(0), call.tensor(1)
    touched = dense((min(indices.numel, integer_at(call, 2)), grad.shape[-1]), grad.dtype)
    return work({vector_unit(grad.dtype): float(grad.numel)}, (grad, indices, touched), (touched,))


def _bag_count(mode: int, weighted: bool, lookups: int, bags: int, width: int) -> float:
    divide = bags * width if mode == _MEAN else 0
    return float(lookups * width * (2 if weighted else 1) + divide)


def embedding_bag(call: Call) -> Cost:
    """_embedding_bag(table (R,D), indices (L), offsets, scale, mode, sparse, weights (L), include_last, padding)."""
    table, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    mode, weights = int(number_at(call, 4, _SUM)), tensor_at(call, 6)
    bags = offsets.shape[0] - bool(number_at(call, 7, 0))
    width = product(table.shape[1:])
    flop = {vector_unit(table.dtype): _bag_count(mode, weights is not None, indices.numel, bags, width)}
    read = (rows_read(table, indices.numel), indices, offsets, weights)
    return work(flop, read, (dense((bags, width), table.dtype),))


def embedding_bag_backward(call: Call) -> Cost:
    """_embedding_bag_dense_backward(grad (bags,D), indices, offset2bag, sizes, max_indices, R, scale, mode, weights).

    Each lookup takes the gradient of its bag (read once a bag) and adds it to its row.
    """
    grad, indices = call.tensor(0), call.tensor(1)
    mode, weights = int(number_at(call, 7, _SUM)), tensor_at(call, 8)
    width = grad.shape[-1]
    touched = dense((min(indices.numel, integer_at(call, 5)), width), grad.dtype)
    count = _bag_count(mode, weights is not None, indices.numel, grad.shape[0], width)
    read = (grad, indices, tensor_at(call, 2), weights, touched)
    return work({vector_unit(grad.dtype): count}, read, (touched,))


def coalesce(call: Call) -> Cost:
    """_coalesce(values (L,D), distinct rows): a reader of traces gives both, for the recorded call has neither."""
    values, distinct = call.tensor(0), integer_at(call, 1)
    if not 0 <= distinct <= values.shape[0]:
        raise ValueError(f"{distinct} distinct rows of {values.shape[0]}")
    kept = dense((distinct, *values.shape[1:]), values.dtype)
    read, written = (values, dense(values.shape[:1], "int64")), (kept, dense((distinct,), "int64"))
    return work({vector_unit(values.dtype): float(values.numel - kept.numel)}, read, written)


_BAG = "L·D adds; 2·L·D with weights; mean: + 1 an output element"
_ROWS = "min(L, R) rows, indices; output"


def operators() -> list[Operator]:
    """Every embedding operator."""
    touched = "gradient, indices, min(L, R) rows; these rows"
    return [
        *same("embedding", "embedding", embedding, "0", _ROWS, delegates=("index_select",)),
        *same("embedding_dense_backward", "embedding", embedding_backward, "L·D adds", touched),
        *same("embedding_bag", "embedding", embedding_bag, _BAG, _ROWS + " (offsets, weights too)", kind="dispatch"),
        *same("_embedding_bag _embedding_bag_forward_only", "embedding", embedding_bag, _BAG,
              _ROWS + " (offsets, weights too)"),
        *same("_coalesce", "index", coalesce, "D adds a row of an index that came before",
              "L rows and indices; the distinct ones"),
        *same("_embedding_bag_dense_backward", "embedding", embedding_bag_backward, _BAG, touched),
    ]  # fmt: skip
