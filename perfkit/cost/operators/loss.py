"""Losses: counts per element. Where a pointwise loss is reduced, the mean or the sum is an operator of its own."""

from __future__ import annotations

from collections.abc import Callable

from perfkit.cost.model import Call, Cost
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import broadcast, dense, number_at, product, tensor_at, vector_unit, work

# Values of the reduction argument.
_NONE, _MEAN, _SUM = 0, 1, 2


def nll_loss(call: Call) -> Cost:
    """nll_loss_forward(x (N,C,…), target (N,…), weight, reduction, ignore_index): one element a target."""
    x, target = call.tensor(0), call.tensor(1)
    picked = dense(target.shape, x.dtype)
    weight = tensor_at(call, 2)
    count = (2 if weight is not None else 1) * target.numel + 1
    reduced = number_at(call, 3, _MEAN) != _NONE
    weights = picked if weight is not None else None
    out = dense((), x.dtype) if reduced else picked
    return work({vector_unit(x.dtype): float(count)}, (picked, target, weights), (out, dense((), x.dtype)))


def nll_loss_backward(call: Call) -> Cost:
    """nll_loss_backward(grad, x, target, …): one element a target; zeroing the rest is an operator of its own."""
    x, target = call.tensor(1), call.tensor(2)
    picked = dense(target.shape, x.dtype)
    return work({vector_unit(x.dtype): 2.0 * target.numel}, (call.tensor(0), target), (picked,))


def pointwise(per_element: int, weight_at: int | None = None) -> Callable[[Call], Cost]:
    """A loss of (x, target, …): `per_element` operations. It writes each, also where the next operator adds them up."""

    def cost(call: Call) -> Cost:
        x, target = call.tensor(0), call.tensor(1)
        weight = tensor_at(call, weight_at) if weight_at is not None else None
        shape = broadcast((x.shape, target.shape))
        count = product(shape) * (per_element + (weight is not None))
        return work({vector_unit(x.dtype): float(count)}, (x, target, weight), (dense(shape, x.dtype),))

    return cost


def pointwise_backward(per_element: int, weight_at: int | None = None) -> Callable[[Call], Cost]:
    """A loss gradient of (grad, x, target, …), written in the shape of x."""

    def cost(call: Call) -> Cost:
        grad, x, target = call.tensor(0), call.tensor(1), call.tensor(2)
        weight = tensor_at(call, weight_at) if weight_at is not None else None
        count = product(broadcast((x.shape, target.shape))) * (per_element + (weight is not None))
        return work({vector_unit(x.dtype): float(count)}, (grad, x, target, weight), (dense(x.shape, x.dtype),))

    return cost


_IO = "input, target, weight; a loss an element"
_IO_BACKWARD = "gradient, input, target, weight; input gradient"


def operators() -> list[Operator]:
    """Every loss that is an operator of its own (cross entropy and others are composites)."""
    family = "loss"
    return [
        *same("nll_loss_forward nll_loss2d_forward", family, nll_loss, "1 a target (2 weighted) + 1",
              "one element a target, targets; loss and total weight"),
        *same("nll_loss_backward nll_loss2d_backward", family, nll_loss_backward, "2 a target",
              "gradient, targets; one element a target"),
        *same("mse_loss", family, pointwise(2), "2 per element (subtract, square)", _IO),
        *same("mse_loss_backward", family, pointwise_backward(3), "3 per element (subtract, ·2/n, ·grad)",
              _IO_BACKWARD),
        *same("smooth_l1_loss huber_loss", family, pointwise(6),
              "6 per element (subtract, |·|, compare, two branches, select)", _IO),
        *same("smooth_l1_loss_backward huber_loss_backward", family, pointwise_backward(5),
              "5 per element (subtract, two comparisons, ·1/β, ·grad)", _IO_BACKWARD),
        *same("binary_cross_entropy", family, pointwise(8, 2),
              "8 per element (1−x, 1−t, two logs, two products, sum, negate), + 1 weighted", _IO),
        *same("binary_cross_entropy_backward", family, pointwise_backward(6, 3),
              "6 per element (x−t, 1−x, ·x, max, divide, ·grad), + 1 weighted", _IO_BACKWARD),
    ]  # fmt: skip
