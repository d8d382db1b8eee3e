"""Rotary position embedding: the pairs (p, p + HS/2) of each head turn by the angle of their position.

Queries and keys are turned in one pass. A turn's gradient is the turn back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, T, N, 2P) by the angles (T, P)."""
    import torch

    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def forward_reference(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """(u, v) → (u·cos − v·sin, v·cos + u·sin) for u at p and v at p + P of each head, in plain PyTorch."""
    return turned(q, cos, sin), turned(k, cos, sin)


def backward_reference(dq: Tensor, dk: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Turn the gradients by the opposite angle, in plain PyTorch."""
    return turned(dq, cos, -sin), turned(dk, cos, -sin)


def cost(call: Call) -> Cost:
    """A pair 6 FLOP: four products, a difference and a sum."""
    q, k, cos, sin = (call.tensor(i) for i in range(4))
    elements = q.numel + k.numel
    read = q.nbytes + k.nbytes + cos.nbytes + sin.nbytes
    return Cost({f"vector_{q.dtype}": 3.0 * elements}, read, elements * ITEM_BYTES[q.dtype])


def sizes(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[int, ...]:
    """N = B·T, T, NH, NKV, P."""
    batch, time, heads, size = q.shape
    return batch * time, time, heads, k.shape[2], size // 2


def inputs(make: Inputs, B: int, T: int, NH: int, NKV: int, P: int) -> tuple[Any, ...]:
    """Draw the arguments of `rotary_forward` or `rotary_backward`."""
    angles = make.normal(T, P, scale=3.0)
    return make.normal(B, T, NH, 2 * P), make.normal(B, T, NKV, 2 * P), angles.cos(), angles.sin()


# One pair, P not a multiple of the vector width, as many heads of keys as of queries, Llama's heads.
CASES = (
    {"B": 1, "T": 1, "NH": 1, "NKV": 1, "P": 1},
    {"B": 2, "T": 5, "NH": 4, "NKV": 2, "P": 3},
    {"B": 2, "T": 7, "NH": 3, "NKV": 3, "P": 20},
    {"B": 1, "T": 33, "NH": 8, "NKV": 2, "P": 32},
)


# For both directions.
IMPLEMENTATIONS = versions(
    c=("a loop", "threads over positions, vectors within a head"),
    cuda=(
        "one pair a thread",
        "16-byte accesses to both halves of a head",
        "a thread turns several heads by angles read once",
    ),
    triton="a position's heads in one program, its angles read once",
)

FAMILY = Family(
    name="rotary",
    text=__doc__,
    legend={"B": "batch", "T": "time", "NH": "heads", "NKV": "heads of keys", "P": "pairs of a head, HS/2"},
    operations=(
        Operation(
            name="rotary_forward",
            category="elementwise",
            schema="(Tensor q, Tensor k, Tensor cos, Tensor sin) -> (Tensor turned_q, Tensor turned_k)",
            formula="(u, v) → (u·cos − v·sin, v·cos + u·sin) for u at p and v at p + P of each head",
            shapes={"q": "B T NH 2P", "k": "B T NKV 2P", "cos": "T P", "sin": "T P"}
            | {"turned_q": "B T NH 2P", "turned_k": "B T NKV 2P"},
            reference=forward_reference,
            scalars=sizes,
            inputs=inputs,
            cases=CASES,
            cost=cost,
            gradient=Gradient("rotary_backward"),
            implementations=IMPLEMENTATIONS,
        ),
        Operation(
            name="rotary_backward",
            category="elementwise",
            schema="(Tensor dturned_q, Tensor dturned_k, Tensor cos, Tensor sin) -> (Tensor dq, Tensor dk)",
            formula="(u, v) → (u·cos + v·sin, v·cos − u·sin) for u at p and v at p + P of each head",
            shapes={"dturned_q": "B T NH 2P", "dturned_k": "B T NKV 2P", "cos": "T P", "sin": "T P"}
            | {"dq": "B T NH 2P", "dk": "B T NKV 2P"},
            reference=backward_reference,
            scalars=sizes,
            inputs=inputs,
            cases=CASES,
            cost=cost,
            implementations=IMPLEMENTATIONS,
        ),
    ),
)
