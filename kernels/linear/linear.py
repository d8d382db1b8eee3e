"""A linear layer's products: forward with what follows it, and its gradients, each into memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost, CostFunction
from perfkit.cost.shapes import matrix_unit
from perfkit.kernels import Family, Implementation, Operation, added_to

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

SIXTEEN_BITS = ("bf16",)  # the epilogues' tanh is approximate: of fp32 they lose some 10⁻⁴
GELU, GELU_BACKWARD = 9.0, 18.0  # FLOP an element, as the family gelu counts


def forward_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `linear_forward` or `linear_bias_forward` in plain PyTorch."""
    from torch.nn.functional import linear

    return linear(x, weight, bias)


def gelu_reference(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """h = x·weightᵀ + bias, g = gelu(h) in its tanh form, in plain PyTorch."""
    from torch.nn.functional import gelu

    h = forward_reference(x, weight, bias)
    return h, gelu(h, approximate="tanh")


def gelu_backward_reference(dy: Tensor, weight: Tensor, h: Tensor) -> Tensor:
    """dh = (dy·weight)·gelu′(h): of a layer whose input is gelu(h), in plain PyTorch."""
    import torch

    return torch.ops.aten.gelu_backward(dy @ weight, h, approximate="tanh")


def _cost(call: Call, multiplied: tuple[int, int, int], results: int = 1, each: float = 0.0, inputs: int = 2) -> Cost:
    """A product of N·M by K is 2·N·M·K FLOP; `each` more for every element of a result."""
    first = call.tensor(0)
    rows, columns, inner = multiplied
    flop = {matrix_unit(first.dtype, call.matmul_precision): 2.0 * rows * columns * inner}
    if each:
        flop[f"vector_{first.dtype}"] = each * rows * columns
    one = float(rows * columns * ITEM_BYTES[first.dtype])
    read = float(sum(call.tensor(i).nbytes for i in range(inputs)))
    return Cost(flop, read + one * added_to(call, inputs, 0), one * results)


def forward_cost(call: Call) -> Cost:
    """2·N·K·M FLOP."""
    x, weight = call.tensor(0), call.tensor(1)
    return _cost(call, (x.shape[0], weight.shape[0], x.shape[1]))


def bias_cost(call: Call) -> Cost:
    """2·N·K·M FLOP, and one for each element's bias."""
    x, weight = call.tensor(0), call.tensor(1)
    return _cost(call, (x.shape[0], weight.shape[0], x.shape[1]), each=1.0, inputs=3)


def gelu_cost(call: Call) -> Cost:
    """2·N·K·M FLOP, and for each element its bias and GELU (`gelu_forward`)."""
    x, weight = call.tensor(0), call.tensor(1)
    return _cost(call, (x.shape[0], weight.shape[0], x.shape[1]), results=2, each=1.0 + GELU, inputs=3)


def input_cost(call: Call) -> Cost:
    """2·N·M·K FLOP."""
    dy, weight = call.tensor(0), call.tensor(1)
    return _cost(call, (dy.shape[0], weight.shape[1], dy.shape[1]))


def weight_cost(call: Call) -> Cost:
    """2·M·N·K FLOP."""
    dy, x = call.tensor(0), call.tensor(1)
    return _cost(call, (dy.shape[1], x.shape[1], dy.shape[0]))


def gelu_backward_cost(call: Call) -> Cost:
    """2·N·M·K FLOP, and for each element GELU's backward (`gelu_backward`)."""
    dy, weight = call.tensor(0), call.tensor(1)
    return _cost(call, (dy.shape[0], weight.shape[1], dy.shape[1]), each=GELU_BACKWARD, inputs=3)


def forward_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw x (N, K), weight (M, K)."""
    return make.normal(N, K), make.normal(M, K, scale=K**-0.5)


def bias_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw the arguments of `linear_bias_forward` or `linear_gelu_forward`."""
    return *forward_inputs(make, N, K, M), make.normal(M)


def input_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw dy (N, M), weight (M, K)."""
    return make.normal(N, M), make.normal(M, K, scale=M**-0.5)


def weight_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw dy (N, M), x (N, K)."""
    return make.normal(N, M), make.normal(N, K)


def gelu_backward_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw dy (N, M), weight (M, K), h (N, K)."""
    return *input_inputs(make, N, K, M), make.normal(N, K, scale=2.0)


# Widths that the matrix units take as they are and others that they do not, and one row.
CASES = (
    {"N": 1, "K": 8, "M": 16},
    {"N": 37, "K": 33, "M": 5},
    {"N": 70, "K": 96, "M": 64},
    {"N": 256, "K": 768, "M": 200},
)


def operation(
    name: str, schema: str, formula: str, shapes: dict[str, str], reference: Callable[..., Any],
    inputs: Callable[..., tuple[Any, ...]], cost: CostFunction,
    accumulates: bool = False, dtypes: tuple[str, ...] = ("fp32", "bf16"),
) -> Operation:  # fmt: skip
    """`linear_NAME`: the function NAME of both sources, over the same cases; `dtypes`: where cuBLASLt is exact."""
    return Operation(
        name=f"linear_{name}", category="matmul", schema=schema, formula=formula, shapes=shapes, reference=reference,
        scalars=lambda *arguments: (), inputs=inputs, cases=CASES, cost=cost,
        implementations=(
            Implementation(1, "torch", "linear_torch.py", name, "the library's product, and what follows on its own"),
            Implementation(
                2, "cublaslt", "linear_cublaslt.py", name,
                "cuBLASLt's fastest algorithm, measured once, with what follows in its epilogue",
                dtypes, accumulates,
            ),
        ),
    )  # fmt: skip


FAMILY = Family(
    name="linear",
    text=__doc__,
    legend={"N": "rows (batch × time)", "K": "width of the input", "M": "width of the output"},
    operations=(
        operation(
            "forward", "(Tensor x, Tensor weight) -> (Tensor y)", "y = x·weightᵀ",
            {"x": "N K", "weight": "M K", "y": "N M"}, forward_reference, forward_inputs, forward_cost,
        ),
        operation(
            "bias_forward", "(Tensor x, Tensor weight, Tensor bias) -> (Tensor y)", "y = x·weightᵀ + bias",
            {"x": "N K", "weight": "M K", "bias": "M", "y": "N M"}, forward_reference, bias_inputs, bias_cost,
        ),
        operation(
            "gelu_forward", "(Tensor x, Tensor weight, Tensor bias) -> (Tensor h, Tensor g)",
            "h = x·weightᵀ + bias, g = gelu(h) in its tanh form",
            {"x": "N K", "weight": "M K", "bias": "M", "h": "N M", "g": "N M"}, gelu_reference, bias_inputs, gelu_cost,
            dtypes=SIXTEEN_BITS,
        ),
        operation(
            "backward_input", "(Tensor dy, Tensor weight) -> (Tensor dx)", "dx = dy·weight",
            {"dy": "N M", "weight": "M K", "dx": "N K"}, lambda dy, weight: dy @ weight, input_inputs, input_cost,
            accumulates=True,
        ),
        operation(
            "backward_weight", "(Tensor dy, Tensor x) -> (Tensor dweight)", "dweight = dyᵀ·x",
            {"dy": "N M", "x": "N K", "dweight": "M K"}, lambda dy, x: dy.mT @ x, weight_inputs, weight_cost,
            accumulates=True,
        ),
        operation(
            "gelu_backward", "(Tensor dy, Tensor weight, Tensor h) -> (Tensor dh)",
            "dh = (dy·weight)·gelu′(h): of a layer whose input is gelu(h)",
            {"dy": "N M", "weight": "M K", "h": "N K", "dh": "N K"}, gelu_backward_reference, gelu_backward_inputs,
            gelu_backward_cost, dtypes=SIXTEEN_BITS,
        ),
    ),
)  # fmt: skip
