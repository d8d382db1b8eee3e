"""The gate of Llama's MLP: y = silu(gate)·up, with both gradients from one reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def forward_reference(gate: Tensor, up: Tensor) -> Tensor:
    """y = gate·s·up, s = 1 / (1 + exp(−gate)), in plain PyTorch."""
    from torch.nn.functional import silu

    return silu(gate) * up


def backward_reference(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """dgate = dy·up·s·(1 + gate·(1 − s)), dup = dy·gate·s, s = 1 / (1 + exp(−gate)), in plain PyTorch."""
    passed = gate.sigmoid()
    return dy * up * passed * (1 + gate * (1 - passed)), dy * gate * passed


def forward_cost(call: Call) -> Cost:
    """An element 5 FLOP: the sigmoid 3, ·gate, ·up."""
    gate = call.tensor(0)
    return Cost({f"vector_{gate.dtype}": 5.0 * gate.numel}, 2 * gate.nbytes, gate.nbytes)


def backward_cost(call: Call) -> Cost:
    """An element 11 FLOP: the sigmoid 3, silu 1, its slope 4 more, dy·silu 1, dy·up·slope 2."""
    dy = call.tensor(0)
    return Cost({f"vector_{dy.dtype}": 11.0 * dy.numel}, 3 * dy.nbytes, 2 * dy.nbytes)


def forward_inputs(make: Inputs, B: int, T: int, F: int) -> tuple[Any, ...]:
    """Draw gate (..., F), up (..., F)."""
    return make.normal(B, T, F, scale=3.0), make.normal(B, T, F)


def backward_inputs(make: Inputs, B: int, T: int, F: int) -> tuple[Any, ...]:
    """Draw dy (..., F), gate (..., F), up (..., F)."""
    return (make.normal(B, T, F), *forward_inputs(make, B, T, F))


def amax_forward_reference(gate: Tensor, up: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    """The larger of amax and max |y|, and y as swiglu_forward gives it, in plain PyTorch."""
    y = forward_reference(gate, up)
    return y.abs().amax().maximum(amax), y


def amax_backward_reference(
    dy: Tensor, gate: Tensor, up: Tensor, amax_gate: Tensor, amax_up: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The largest absolute values so far, and dgate and dup as swiglu_backward gives them, in plain PyTorch."""
    dgate, dup = backward_reference(dy, gate, up)
    return dgate.abs().amax().maximum(amax_gate), dup.abs().amax().maximum(amax_up), dgate, dup


def with_amax(cost: Cost, dtype: str, elements: int, results: int) -> Cost:
    """Two FLOP more for an element of each of `results`, and as many numbers in fp32 read and written."""
    unit, numbers = f"vector_{dtype}", float(results * ITEM_BYTES["fp32"])
    flop = {**cost.flop, unit: cost.flop[unit] + 2.0 * results * elements}
    return Cost(flop, cost.bytes_read + numbers, cost.bytes_written + numbers)


def amax_forward_cost(call: Call) -> Cost:
    """The gate, and 2 FLOP more an element: its absolute value, and the larger of two."""
    gate = call.tensor(0)
    return with_amax(forward_cost(call), gate.dtype, gate.numel, 1)


def amax_backward_cost(call: Call) -> Cost:
    """Both gradients, and 2 FLOP more for an element of each: its absolute value, and the larger of two."""
    dy = call.tensor(0)
    return with_amax(backward_cost(call), dy.dtype, dy.numel, 2)


def amax_forward_inputs(make: Inputs, B: int, T: int, F: int) -> tuple[Any, ...]:
    """Draw gate (..., F), up (..., F), and an amax that may be the larger one."""
    return *forward_inputs(make, B, T, F), make.normal(scale=8.0).float().abs()


def amax_backward_inputs(make: Inputs, B: int, T: int, F: int) -> tuple[Any, ...]:
    """Draw dy (..., F), gate (..., F), up (..., F), and largest values so far."""
    return *backward_inputs(make, B, T, F), make.normal(scale=8.0).float().abs(), make.normal().float().abs()


# One number, not a multiple of the vector width, several blocks.
CASES = ({"B": 1, "T": 1, "F": 1}, {"B": 1, "T": 7, "F": 33}, {"B": 2, "T": 16, "F": 2048})

FAMILY = Family(
    name="swiglu",
    text=__doc__,
    legend={"...": "any dimensions; the cases have B batch and T time", "F": "width of the MLP"},
    operations=(
        Operation(
            name="swiglu_forward",
            category="elementwise",
            schema="(Tensor gate, Tensor up) -> (Tensor y)",
            formula="y = gate·s·up, s = 1 / (1 + exp(−gate))",
            shapes=dict.fromkeys(("gate", "up", "y"), "... F"),
            reference=forward_reference,
            scalars=lambda gate, up: (gate.numel(),),
            inputs=forward_inputs,
            cases=CASES,
            cost=forward_cost,
            gradient=Gradient("swiglu_backward"),
            implementations=versions(
                c=("a loop", "threads and vectors"),
                cuda=("one element a thread", "16-byte accesses"),
                triton="one pass",
            ),
        ),
        Operation(
            name="swiglu_backward",
            category="elementwise",
            schema="(Tensor dy, Tensor gate, Tensor up) -> (Tensor dgate, Tensor dup)",
            formula="dgate = dy·up·s·(1 + gate·(1 − s)), dup = dy·gate·s, s = 1 / (1 + exp(−gate))",
            shapes=dict.fromkeys(("dy", "gate", "up", "dgate", "dup"), "... F"),
            reference=backward_reference,
            scalars=lambda dy, gate, up: (dy.numel(),),
            inputs=backward_inputs,
            cases=CASES,
            cost=backward_cost,
            implementations=versions(
                c=("a loop", "threads and vectors"),
                cuda=("one element a thread", "16-byte accesses"),
                triton="one pass",
            ),
        ),
        Operation(
            name="swiglu_amax_forward",
            category="elementwise",
            schema="(Tensor gate, Tensor up, Tensor(a!) amax) -> (Tensor y)",
            formula="y as swiglu_forward gives it, amax = the larger of amax and the largest |y|",
            shapes={**dict.fromkeys(("gate", "up", "y"), "... F"), "amax": ""},
            dtypes={"amax": "fp32"},
            reference=amax_forward_reference,
            scalars=lambda gate, up, amax: (gate.numel(),),
            inputs=amax_forward_inputs,
            cases=CASES,
            cost=amax_forward_cost,
            implementations=versions(
                c=("threads and vectors, then the largest",),
                cuda=("16-byte accesses; the largest while it is in registers",),
                triton="one pass",
            ),
        ),
        Operation(
            name="swiglu_amax_backward",
            category="elementwise",
            schema="(Tensor dy, Tensor gate, Tensor up, Tensor(a!) amax_gate, Tensor(b!) amax_up) "
            "-> (Tensor dgate, Tensor dup)",
            formula="dgate and dup as swiglu_backward gives them, amax_gate and amax_up raised to the largest of each",
            shapes={**dict.fromkeys(("dy", "gate", "up", "dgate", "dup"), "... F"), "amax_gate": "", "amax_up": ""},
            dtypes={"amax_gate": "fp32", "amax_up": "fp32"},
            reference=amax_backward_reference,
            scalars=lambda dy, *others: (dy.numel(),),
            inputs=amax_backward_inputs,
            cases=CASES,
            cost=amax_backward_cost,
            implementations=versions(
                c=("threads and vectors, then the largest",),
                cuda=("16-byte accesses; the largest while they are in registers",),
                triton="one pass",
            ),
        ),
    ),
)
