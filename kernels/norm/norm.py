"""The global norm of gradients, as the sum of squares of each part: √ of the parts' sum is the norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Operation, versions

if TYPE_CHECKING:
    from perfkit.kernels.checking import Inputs


def cost(call: Call) -> Cost:
    """2 FLOP an element: square and sum."""
    x = call.tensor(0)
    return Cost({f"vector_{x.dtype}": 2.0 * x.numel}, x.nbytes, ITEM_BYTES["fp32"])


def inputs(make: Inputs, N: int) -> tuple[Any, ...]:
    """Draw x (...)."""
    return (make.normal(N, scale=3.0),)


FAMILY = Family(
    name="norm",
    text=__doc__,
    legend={"...": "any dimensions", "N": "elements"},
    operations=(
        Operation(
            name="global_norm",
            category="reduction",
            schema="(Tensor x) -> (Tensor squares)",
            formula="squares = Σ x²",
            shapes={"x": "...", "squares": ""},
            dtypes={"squares": "fp32"},
            reference=lambda x: x.square().sum(),
            scalars=lambda x: (x.numel(),),
            inputs=inputs,
            cases=({"N": 1}, {"N": 13}, {"N": 64}, {"N": 300_007}),
            cost=cost,
            implementations=versions(
                c=("a loop in fp64", "threads over parts, vectors within"),
                cuda=(
                    "one block",
                    "many blocks, their parts summed in a fixed order",
                    "16-byte accesses, four of a thread under way at once",
                ),
                triton="sums of parts, in a fixed order",
                accumulates={"c": (1, 2)},
                triton_fastest_in=("bf16",),
            ),
        ),
    ),
)
