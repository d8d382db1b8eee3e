"""A linear layer's three products of fp8 numbers, with their scales, rounded once to bf16.

All operands have the inner dimension contiguous, as the library wants it: what one product takes as it lies, another
takes transposed (`fp8_cast` writes both). Sums are kept with fewer bits in the forward pass only (fast accumulation).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost, CostFunction
from perfkit.kernels import Family, Implementation, Operation
from perfkit.kernels.declare import added_to

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def forward_reference(x8: Tensor, w8: Tensor, scale_x: Tensor, scale_w: Tensor) -> Tensor:
    """y = x8·w8ᵀ·scale_x·scale_w, in plain PyTorch."""
    return _product(x8, w8, scale_x, scale_w)


def bias_reference(x8: Tensor, w8: Tensor, scale_x: Tensor, scale_w: Tensor, bias: Tensor) -> Tensor:
    """The same + bias."""
    return _product(x8, w8, scale_x, scale_w) + bias.to(_wide(x8))


def _product(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """a·bᵀ with both scales, in at least fp32: PyTorch adds no numbers of fp8."""
    wide = _wide(a)
    return a.to(wide) @ b.to(wide).mT * (scale_a * scale_b)


def _wide(x: Tensor) -> Any:
    import torch

    return torch.promote_types(torch.float32, x.dtype) if x.dtype.itemsize > 1 else torch.float32


def _cost(call: Call, rows: int, columns: int, inner: int, each: float = 0.0) -> Cost:
    """A product of rows·columns by inner is 2·rows·columns·inner FLOP of fp8; `each` more for an element of bf16."""
    tensors = 5 if each else 4
    read = float(sum(call.tensor(i).nbytes for i in range(tensors)))
    result = float(rows * columns * ITEM_BYTES["bf16"])
    flop = {"matrix_fp8": 2.0 * rows * columns * inner}
    if each:
        flop["vector_bf16"] = each * rows * columns
    return Cost(flop, read + result * added_to(call, tensors, 0), result)


def forward_cost(call: Call) -> Cost:
    """2·N·K·M FLOP."""
    x8, w8 = call.tensor(0), call.tensor(1)
    return _cost(call, x8.shape[0], w8.shape[0], x8.shape[1])


def bias_cost(call: Call) -> Cost:
    """2·N·K·M FLOP, and one for each element's bias."""
    x8, w8 = call.tensor(0), call.tensor(1)
    return _cost(call, x8.shape[0], w8.shape[0], x8.shape[1], each=1.0)


def _scales(make: Inputs) -> tuple[Tensor, Tensor]:
    return make.normal(scale=0.5).float().exp(), make.normal(scale=0.5).float().exp() / 4


def forward_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw x8 (N, K), w8 (M, K), and their scales."""
    return make.normal(N, K, scale=30.0), make.normal(M, K, scale=30.0), *_scales(make)


def bias_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw the arguments of `fp8_linear_bias_forward`."""
    import torch

    return *forward_inputs(make, N, K, M), make.normal(M, scale=100.0).to(torch.bfloat16)


def input_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw dy8 (N, M), w8t (K, M), and their scales."""
    import torch

    return make.normal(N, M, scale=30.0).to(torch.float8_e5m2), make.normal(K, M, scale=30.0), *_scales(make)


def weight_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw dy8t (M, N), x8t (K, N), and their scales."""
    import torch

    return make.normal(M, N, scale=30.0).to(torch.float8_e5m2), make.normal(K, N, scale=30.0), *_scales(make)


# Sizes divide by 16: cuBLASLt takes no others.
CASES = ({"N": 16, "K": 16, "M": 32}, {"N": 48, "K": 96, "M": 64}, {"N": 256, "K": 768, "M": 208})
TYPES = {  # of tensors that are not e4m3
    "y": "bf16", "dx": "bf16", "dweight": "bf16", "bias": "bf16", "dy8": "e5m2", "dy8t": "e5m2",
    "scale_x": "fp32", "scale_w": "fp32", "scale_dy": "fp32",
}  # fmt: skip


def operation(
    name: str, schema: str, formula: str, shapes: dict[str, str], reference: Callable[..., Any],
    inputs: Callable[..., tuple[Any, ...]], cost: CostFunction, accumulates: bool = False,
) -> Operation:  # fmt: skip
    """`fp8_linear_NAME`: the function NAME of both sources."""
    return Operation(
        name=f"fp8_linear_{name}", category="matmul", schema=schema, formula=formula, shapes=shapes,
        dtypes={tensor: TYPES[tensor] for tensor in shapes if tensor in TYPES},
        reference=reference, scalars=lambda *arguments: (), inputs=inputs, cases=CASES, cost=cost,
        tolerance={"e4m3": 1e-2},
        implementations=(
            Implementation(
                1, "torch", "fp8_linear_torch.py", name, "PyTorch's product of scaled numbers",
                ("e4m3",),
            ),
            Implementation(
                2, "cublaslt", "fp8_linear_cublaslt.py", name,
                "cuBLASLt's fastest algorithm, measured once", ("e4m3",), accumulates,
            ),
        ),
    )  # fmt: skip


FAMILY = Family(
    name="fp8_linear",
    text=__doc__,
    legend={"N": "rows (batch × time)", "K": "width of the input", "M": "width of the output"},
    operations=(
        operation(
            "forward", "(Tensor x8, Tensor w8, Tensor scale_x, Tensor scale_w) -> (Tensor y)",
            "y = x8·w8ᵀ·scale_x·scale_w", {"x8": "N K", "w8": "M K", "scale_x": "", "scale_w": "", "y": "N M"},
            forward_reference, forward_inputs, forward_cost,
        ),
        operation(
            "bias_forward", "(Tensor x8, Tensor w8, Tensor scale_x, Tensor scale_w, Tensor bias) -> (Tensor y)",
            "y = x8·w8ᵀ·scale_x·scale_w + bias",
            {"x8": "N K", "w8": "M K", "scale_x": "", "scale_w": "", "bias": "M", "y": "N M"},
            bias_reference, bias_inputs, bias_cost,
        ),
        operation(
            "backward_input", "(Tensor dy8, Tensor w8t, Tensor scale_dy, Tensor scale_w) -> (Tensor dx)",
            "dx = dy8·w8·scale_dy·scale_w, w8t = w8ᵀ",
            {"dy8": "N M", "w8t": "K M", "scale_dy": "", "scale_w": "", "dx": "N K"},
            forward_reference, input_inputs, forward_cost, accumulates=True,
        ),
        operation(
            "backward_weight", "(Tensor dy8t, Tensor x8t, Tensor scale_dy, Tensor scale_x) -> (Tensor dweight)",
            "dweight = dy8ᵀ·x8·scale_dy·scale_x, dy8t = dy8ᵀ, x8t = x8ᵀ",
            {"dy8t": "M N", "x8t": "K N", "scale_dy": "", "scale_x": "", "dweight": "M K"},
            forward_reference, weight_inputs, forward_cost, accumulates=True,
        ),
    ),
)  # fmt: skip
