"""Products of a few rows with a weight, as decoding needs them: the weight is read once, by rows, at memory's speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (…, K) by weight (M, K), and the bias (M) where there is one."""
    product = x @ weight.T
    return product if bias is None else product + bias


def cost(call: Call) -> Cost:
    """2 FLOP a product and its sum; 1 more an output where a bias is added."""
    x, weight = call.tensor(0), call.tensor(1)
    outputs = x.numel // max(weight.shape[1], 1) * weight.shape[0]
    flop = {f"matrix_{x.dtype}": 2.0 * outputs * weight.shape[1]}
    if len(call.tensors) > 2:
        flop[f"vector_{x.dtype}"] = float(outputs)
    return Cost(flop, sum(t.nbytes for t in call.tensors), outputs * ITEM_BYTES[x.dtype])


def inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw x (..., K), weight (M, K)."""
    return make.normal(N, K), make.normal(M, K)


def bias_inputs(make: Inputs, N: int, K: int, M: int) -> tuple[Any, ...]:
    """Draw x (..., K), weight (M, K), bias (M)."""
    return *inputs(make, N, K, M), make.normal(M)


def sizes(x: Tensor, weight: Tensor, *_: Any) -> tuple[int, int, int]:
    """N, K, M."""
    m, k = weight.shape
    return x.numel() // max(k, 1), k, m


# One of each, sizes that are not a multiple of the vector width, rows that are not a multiple of those taken together,
# a long row, as many rows as tensor cores take and more, many outputs.
CASES = (
    {"N": 1, "K": 1, "M": 1},
    {"N": 3, "K": 33, "M": 7},
    {"N": 1, "K": 768, "M": 2304},
    {"N": 5, "K": 3328, "M": 70},
    {"N": 19, "K": 1032, "M": 34},
    {"N": 40, "K": 256, "M": 16},
    {"N": 8, "K": 64, "M": 515},
)
LEGEND = {"...": "any dimensions, N rows in all: few", "K": "columns", "M": "outputs of a row"}
V2 = "eight rows of the weight at once, the next eight asked of memory meanwhile; threads over pieces"
V3 = "as many threads an output as fill the GPU, loads of each under way together; outputs share what they read of x"

V4 = "sixteen outputs by tensor cores for up to 32 rows at once; in fp32, or of one or two, version 3"

IMPLEMENTATIONS = versions(
    c=("three loops", V2),
    cuda=("one thread an output", "one warp an output, 16-byte accesses", V3, V4),
    triton="blocks of outputs, the weight read once for all rows",
    source="gemv",
)

FAMILY = Family(
    name="few_rows",
    text=__doc__,
    legend=LEGEND,
    operations=(
        Operation(
            name="gemv",
            category="matmul",
            schema="(Tensor x, Tensor weight) -> (Tensor y)",
            formula="y = x·weightᵀ",
            shapes={"x": "... K", "weight": "M K", "y": "... M"},
            reference=reference,
            scalars=sizes,
            inputs=inputs,
            cases=CASES,
            cost=cost,
            implementations=IMPLEMENTATIONS,
        ),
        Operation(
            name="gemv_bias",
            category="matmul",
            schema="(Tensor x, Tensor weight, Tensor bias) -> (Tensor y)",
            formula="y = x·weightᵀ + bias",
            shapes={"x": "... K", "weight": "M K", "bias": "M", "y": "... M"},
            reference=reference,
            scalars=sizes,
            inputs=bias_inputs,
            cases=CASES,
            cost=cost,
            implementations=IMPLEMENTATIONS,
        ),
    ),
)
