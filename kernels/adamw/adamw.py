"""AdamW: one step of the optimizer, everything in one pass over the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def reference(
    param: Tensor, grad: Tensor, m: Tensor, v: Tensor,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, step: int, grad_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The new param, m and v."""
    g = grad * grad_scale
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    root = (v / (1 - beta2**step)).sqrt() + eps
    return param * (1 - lr * weight_decay) - lr * (m / (1 - beta1**step)) / root, m, v


def kernel_numbers(
    param: Tensor, grad: Tensor, m: Tensor, v: Tensor,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, step: int, grad_scale: float,
) -> tuple[int | float, ...]:  # fmt: skip
    """n, lr, beta1, beta2, eps, decay, correction1, correction2, grad_scale.

    decay = 1 − lr·weight_decay, correction1 = 1 − beta1^step, correction2 = 1 − beta2^step.
    """
    decay = 1.0 - lr * weight_decay
    numbers = (lr, beta1, beta2, eps, decay, 1.0 - beta1**step, 1.0 - beta2**step, grad_scale)
    return param.numel(), *map(float, numbers)


def cost(call: Call) -> Cost:
    """15 FLOP an element: g 1, m 3, v 4, (÷, √, + eps) of v 3, ·decay 1, and 3 for ·lr/(1 − β₁^step), ÷, −."""
    param, grad, m, v = (call.tensor(i) for i in range(4))
    moments = (m.numel + v.numel) * ITEM_BYTES["fp32"]
    read = param.nbytes + grad.nbytes + m.nbytes + v.nbytes
    return Cost({f"vector_{param.dtype}": 15.0 * param.numel}, read, param.nbytes + moments)


def inputs(make: Inputs, N: int) -> tuple[Any, ...]:
    """Numbers that make each term count: of an error of 0.1 % in any, at least 0.01 % shows in a result.

    The gradient adds a third to m, and as much as there is to v; epsilon is about √(v/(1 − β₂^step)), and the decay and
    the change are a quarter of a parameter.
    """
    moment, square = make.normal(N, scale=0.1).float(), make.normal(N, scale=0.025).float().square()
    return make.normal(N), make.normal(N), moment, square, 0.5, 0.9, 0.999, 0.5, 0.5, 3, 0.7


FAMILY = Family(
    name="adamw",
    text=__doc__,
    legend={"...": "any dimensions", "N": "elements"},
    operations=(
        Operation(
            name="adamw_step",
            category="optimizer",
            schema="(Tensor(a!) param, Tensor grad, Tensor(b!) m, Tensor(c!) v, float lr, float beta1, float beta2, "
            "float eps, float weight_decay, int step, float grad_scale) -> ()",
            formula="g = grad_scale·grad, m = β₁·m + (1 − β₁)·g, v = β₂·v + (1 − β₂)·g², "
            "param = (1 − lr·weight_decay)·param − lr·m/(1 − β₁^step) / (√(v/(1 − β₂^step)) + eps)",
            shapes={"param": "...", "grad": "...", "m": "...", "v": "..."},
            dtypes={"m": "fp32", "v": "fp32"},
            reference=reference,
            scalars=kernel_numbers,
            inputs=inputs,
            cases=({"N": 1}, {"N": 13}, {"N": 64}, {"N": 100_003}),
            cost=cost,
            rounded_once=True,
            implementations=versions(
                c=("a loop in fp64", "threads and vectors, in fp32"),
                cuda=("one parameter a thread", "16-byte accesses"),
                triton="one pass, in place",
            ),
        ),
    ),
)
