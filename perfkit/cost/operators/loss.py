"""Losses: counts per element. Where a pointwise loss is reduced, the mean or the sum is an operator of its own."""

from __future__ import annotations

from collections.abc import Callable

from perfkit.cost.model import Call, Cost, TensorSpec
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


def _longest(call: Call, targets: TensorSpec, lengths: int, batch: int) -> int:
    """S, the letters of the longest target: the width of `targets` (N, S), else the largest number in the argument
    `lengths`, else the mean of what all targets hold together."""
    if len(targets.shape) == 2:
        return targets.shape[1]
    given = call.arguments[lengths] if lengths < len(call.arguments) else None
    numbers = [n for n in given if isinstance(n, int)] if isinstance(given, tuple) else []
    return max(numbers, default=-(-targets.numel // max(batch, 1)))


def ctc(call: Call) -> Cost:
    """_ctc_loss(log probabilities (T, N, C), targets, input lengths, target lengths, …): the sums α of the paths to
    each of the 2·S + 1 states at each time (Graves et al., 2006). A state: the largest of three (2), three differences,
    three exponentials, two sums, a logarithm, two sums. It reads what targets and the blank ask for, and keeps α.
    """
    x, targets = call.tensor(0), call.tensor(1)
    time, batch, classes = x.shape
    letters = _longest(call, targets, 3, batch)
    states = time * batch * (2 * letters + 1)
    read = dense((time, batch, min(classes, letters + 1)), x.dtype)
    kept = dense((batch, time, 2 * letters + 1), x.dtype)
    return work({vector_unit(x.dtype): 13.0 * states}, (read, targets), (kept, dense((batch,), x.dtype)))


def ctc_backward(call: Call) -> Cost:
    """_ctc_loss_backward(grad, log probabilities, targets, input lengths, target lengths, loss, α (N, T, 2·S + 1), …):
    the sums β as α (13 a state), α + β added up by letters (7), and exp(x) − exp(that) times the gradient (6) each."""
    grad, x, targets = (call.tensor(i) for i in range(3))
    loss, alpha = call.tensor(5), call.tensor(6)
    count = 20.0 * alpha.numel + 6.0 * x.numel
    return work({vector_unit(x.dtype): count}, (grad, x, targets, loss, alpha), (dense(x.shape, x.dtype),))


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
        *same("_ctc_loss", family, ctc, "13 a state at each time, of which there are 2·S + 1",
              "log probabilities that targets ask for, targets; α and a loss a sequence"),
        *same("_ctc_loss_backward", family, ctc_backward, "20 a state at each time, 6 an element of the input",
              "log probabilities, targets, α; input gradient"),
        *same("binary_cross_entropy_backward", family, pointwise_backward(6, 3),
              "6 per element (x−t, 1−x, ·x, max, divide, ·grad), + 1 weighted", _IO_BACKWARD),
    ]  # fmt: skip
