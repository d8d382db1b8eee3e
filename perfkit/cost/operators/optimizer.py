"""Optimizers as one operator, and the `_foreach_` forms of elementwise operators.

Per parameter element, AdamW counts 14: weight decay 1; first moment 3 (subtract, ·(1−β₁), add); second moment 4
(·β₂, g·g, ·(1−β₂), add); √v̂ 2 (√, ÷√(1−β₂ᵗ)), +ε 1; update 3 (·step size, divide, subtract). Adam's weight decay goes
into the gradient (2 instead of 1), AMSGrad adds one maximum. SGD counts 2, and 2 more for each of weight decay,
momentum and Nesterov.
"""

from __future__ import annotations

from collections.abc import Callable

from perfkit.cost.model import Argument, Call, Cost, CostFunction, TensorSpec
from perfkit.cost.operators.elementwise import FORMULAS, elementwise
from perfkit.cost.operators.movement import copy_into, fill
from perfkit.cost.operators.reduction import maximum, norm
from perfkit.cost.registry import ANY, Operator, same
from perfkit.cost.shapes import nbytes, number_at, tensors_at, vector_unit, work


def _elements(tensors: tuple[TensorSpec, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for t in tensors:
        found[vector_unit(t.dtype)] = found.get(vector_unit(t.dtype), 0.0) + t.numel
    return found


def _recorded(call: Call) -> tuple[TensorSpec, ...]:
    """The first list; raises `ValueError` where it is empty: long lists are recorded without their tensors."""
    tensors = tensors_at(call, 0)
    if not tensors:
        raise ValueError(f"{call.name}: the tensors of the list were not recorded")
    return tensors


def adam(decay: Callable[[float], int]) -> CostFunction:
    """_fused_adam(w)_(parameters, gradients, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, β₁, β₂, weight decay,
    eps, amsgrad, …); `decay` gives the operations of a weight decay."""

    def cost(call: Call) -> Cost:
        parameters = _recorded(call)
        gradients, first, second, largest = (tensors_at(call, i) for i in range(1, 5))
        # The learning rate may be a number or a 0-d tensor: the place of what follows is the same.
        count = 13 + decay(number_at(call, 9, 0.01)) + bool(largest)
        flop = {unit: count * n for unit, n in _elements(parameters).items()}
        state = (*parameters, *first, *second, *largest)
        return work(flop, (*state, *gradients), state)

    return cost


def sgd(call: Call) -> Cost:
    """_fused_sgd_(parameters, gradients, momentum buffers, weight decay, momentum, lr, dampening, nesterov, …)."""
    parameters, gradients = _recorded(call), tensors_at(call, 1)
    momentum = number_at(call, 4, 0.0) != 0
    count = 2 + 2 * (number_at(call, 3, 0.0) != 0) + 2 * momentum + 2 * (momentum and number_at(call, 7, 0) != 0)
    flop = {unit: count * n for unit, n in _elements(parameters).items()}
    buffers = parameters if momentum else ()
    return work(flop, (*parameters, *gradients, *buffers), (*parameters, *buffers))


def adagrad(call: Call) -> Cost:
    """_fused_adagrad_(parameters, gradients, sums, steps, …): 7 an element (g², add, √, +ε, ·lr, divide, subtract)."""
    parameters, gradients, sums = _recorded(call), tensors_at(call, 1), tensors_at(call, 2)
    flop = {unit: 7 * n for unit, n in _elements(parameters).items()}
    return work(flop, (*parameters, *gradients, *sums), (*parameters, *sums))


def unscale(call: Call) -> Cost:
    """_amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, inverse scale): multiply and test an element."""
    tensors = _recorded(call)
    flop = {unit: 2 * n for unit, n in _elements(tensors).items()}
    return Cost(flop, nbytes(tensors), nbytes(tensors))


def _at(argument: Argument, position: int, count: int) -> Argument:
    """The part of a list argument that belongs to one of `count` tensors."""
    if isinstance(argument, tuple) and len(argument) == count:
        return argument[position]
    return argument


def foreach(name: str, single: CostFunction) -> CostFunction:
    """The sum of `single` over the lists' tensors, one call each."""

    def cost(call: Call) -> Cost:
        tensors = _recorded(call)
        total = Cost()
        for i in range(len(tensors)):
            arguments = tuple(_at(a, i, len(tensors)) for a in call.arguments)
            total += single(Call(f"aten::{name}", arguments, call.matmul_precision))
        return total

    return cost


_FOREACH = (
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lerp "
    "lgamma log log10 log1p log2 maximum minimum mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan "
    "tanh trunc"
)


def _foreach_operators() -> list[Operator]:
    found = []
    for name in _FOREACH.split():
        formula = FORMULAS[name]
        text, traffic = "as the operator without `_foreach_`", "every list's tensors; results"
        for suffix, in_place in (("", False), ("_", True)):
            cost = foreach(name, elementwise(formula, in_place))
            found += same(f"_foreach_{name}{suffix}", "elementwise", cost, text, traffic, delegates=(ANY,))
    found += same("_foreach_zero_", "fill", foreach("zero_", fill), "0", "written once", delegates=(ANY,))
    found += same("_foreach_copy_", "copy", foreach("copy_", copy_into), "0", "sources; destinations", delegates=(ANY,))
    found += same("_foreach_norm", "reduction", foreach("norm", norm), "norm of each tensor", "all; one number each",
                  delegates=(ANY,))  # fmt: skip
    found += same("_foreach_max", "reduction", foreach("max", maximum), "max of each tensor", "all; one number each",
                  delegates=(ANY,))  # fmt: skip
    return found


def operators() -> list[Operator]:
    """Fused optimizers and foreach operators."""
    family = "optimizer"
    adam_io = "parameters, gradients, both moments (and maxima); all but the gradients"
    return [
        *same("_fused_adamw_ _fused_adamw", family, adam(lambda weight: 1 if weight else 0),
              "14 per element (13 without weight decay), AMSGrad + 1", adam_io),
        *same("_fused_adam_ _fused_adam", family, adam(lambda weight: 2 if weight else 0),
              "13 per element, weight decay + 2, AMSGrad + 1", adam_io),
        *same("_fused_sgd_ _fused_sgd", family, sgd,
              "2 per element, weight decay + 2, momentum + 2, Nesterov + 2",
              "parameters, gradients, momentum; parameters, momentum"),
        *same("_fused_adagrad_", family, adagrad, "7 per element", "parameters, gradients, sums; parameters, sums"),
        *same("_amp_foreach_non_finite_check_and_unscale_", family, unscale, "2 per element (test, multiply)",
              "gradients; gradients"),
        *_foreach_operators(),
    ]  # fmt: skip
