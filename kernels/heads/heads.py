"""Copies around attention: tokens split into the heads of q, k and v, and heads merged into tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.errors import InputError
from perfkit.kernels import Family, Gradient, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def split_reference(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """q[b,h,t,i] = qkv[b, t, h·HS + i]; k and v the same from C and 2C on, in plain PyTorch."""
    from perfkit.functional import split_heads

    return split_heads(qkv, heads)


def split_backward_reference(dq: Tensor, dk: Tensor, dv: Tensor) -> Tensor:
    """dqkv[b, t, h·HS + i] = dq[b,h,t,i]; dk and dv the same from C and 2C on, in plain PyTorch."""
    import torch

    return torch.cat([merge_reference(d) for d in (dq, dk, dv)], dim=-1)


def split_bias_backward_reference(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
    """dqkv as split_heads_backward gives it, db = Σ over b and t of dqkv[b,t]: the projection's bias, in plain
    PyTorch."""
    dqkv = split_backward_reference(dq, dk, dv)
    return dqkv, dqkv.flatten(0, 1).sum(dim=0)


def merge_reference(x: Tensor) -> Tensor:
    """y[b, t, h·HS + i] = x[b,h,t,i], in plain PyTorch."""
    from perfkit.functional import merge_heads

    return merge_heads(x)


def merge_backward_reference(dy: Tensor, heads: int) -> Tensor:
    """dx[b,h,t,i] = dy[b, t, h·HS + i], in plain PyTorch."""
    return dy.unflatten(-1, (heads, -1)).transpose(1, 2)


def head_size(channels: int, heads: int) -> int:
    """HS = C / NH. Raises `InputError` when the heads do not divide the channels."""
    if heads < 1 or channels % heads:
        raise InputError(f"{channels} channels cannot be split into {heads} heads.", "Choose a divisor.")
    return channels // heads


def heads_of(tokens: Tensor, heads: int, parts: int) -> dict[str, int]:
    """NH and HS of a tensor (B, T, parts·C)."""
    return {"NH": heads, "HS": head_size(tokens.shape[-1] // parts, heads)}


def channels_of(x: Tensor, *_: Any) -> dict[str, int]:
    """C of a tensor (B, NH, T, HS)."""
    return {"C": x.shape[1] * x.shape[3]}


def sizes_of_tokens(tokens: Tensor, heads: int, parts: int) -> tuple[int, ...]:
    """B, T, NH, HS of a tensor (B, T, parts·C)."""
    return *tokens.shape[:2], *heads_of(tokens, heads, parts).values()


def sizes_of_heads(x: Tensor) -> tuple[int, ...]:
    """B, T, NH, HS of a tensor (B, NH, T, HS)."""
    batch, heads, time, size = x.shape
    return batch, time, heads, size


def copy_cost(call: Call) -> Cost:
    """No arithmetic; every element read once and written once."""
    tensors = call.tensors
    written = sum(t.numel * ITEM_BYTES[t.dtype] for t in tensors)
    return Cost({f"vector_{tensors[0].dtype}": 0.0}, sum(t.nbytes for t in tensors), written)


def copy_and_sum_cost(call: Call) -> Cost:
    """Every element read once and written once, and added up: 1 FLOP."""
    dq = call.tensor(0)
    sums = 3 * dq.shape[1] * dq.shape[3] * ITEM_BYTES[dq.dtype]
    return copy_cost(call) + Cost({f"vector_{dq.dtype}": 3.0 * dq.numel}, 0, sums)


def split_inputs(make: Inputs, B: int, T: int, NH: int, HS: int) -> tuple[Any, ...]:
    """Draw qkv (B, T, 3C)."""
    return make.normal(B, T, 3 * NH * HS), NH


def split_backward_inputs(make: Inputs, B: int, T: int, NH: int, HS: int) -> tuple[Any, ...]:
    """Draw the arguments of `split_heads_backward` or `split_heads_bias_backward`."""
    return tuple(make.normal(B, NH, T, HS) for _ in range(3))


def merge_inputs(make: Inputs, B: int, T: int, NH: int, HS: int) -> tuple[Any, ...]:
    """Draw x (B, NH, T, HS)."""
    return (make.normal(B, NH, T, HS),)


def merge_backward_inputs(make: Inputs, B: int, T: int, NH: int, HS: int) -> tuple[Any, ...]:
    """Draw dy (B, T, C)."""
    return make.normal(B, T, NH * HS), NH


# One token, sizes that are not a multiple of the vector width, GPT-2's head.
HEAD_CASES = (
    {"B": 1, "T": 1, "NH": 1, "HS": 1},
    {"B": 2, "T": 5, "NH": 3, "HS": 7},
    {"B": 3, "T": 33, "NH": 2, "HS": 24},
    {"B": 2, "T": 64, "NH": 12, "HS": 64},
)


COPIES = versions(
    c=("element by element", "threads over tokens, whole head rows at a time"),
    cuda=("one element a thread", "16-byte accesses, two tokens of a thread at once"),
    triton="blocks of whole head rows",
)

FAMILY = Family(
    name="heads",
    text=__doc__,
    legend={
        "B": "batch",
        "T": "time",
        "C": "channels = NH·HS",
        "NH": "heads",
        "HS": "head size",
    },
    operations=(
        Operation(
            name="split_heads_forward",
            category="copy",
            schema="(Tensor qkv, int heads) -> (Tensor q, Tensor k, Tensor v)",
            formula="q[b,h,t,i] = qkv[b, t, h·HS + i]; k and v the same from C and 2C on",
            shapes={"qkv": "B T 3C", "q": "B NH T HS", "k": "B NH T HS", "v": "B NH T HS"},
            reference=split_reference,
            letters=lambda qkv, heads: heads_of(qkv, heads, 3),
            scalars=lambda qkv, heads: sizes_of_tokens(qkv, heads, 3),
            inputs=split_inputs,
            cases=HEAD_CASES,
            cost=copy_cost,
            gradient=Gradient("split_heads_backward"),
            implementations=COPIES,
        ),
        Operation(
            name="split_heads_backward",
            category="copy",
            schema="(Tensor dq, Tensor dk, Tensor dv) -> (Tensor dqkv)",
            formula="dqkv[b, t, h·HS + i] = dq[b,h,t,i]; dk and dv the same from C and 2C on",
            shapes={"dq": "B NH T HS", "dk": "B NH T HS", "dv": "B NH T HS", "dqkv": "B T 3C"},
            reference=split_backward_reference,
            letters=channels_of,
            scalars=lambda dq, dk, dv: sizes_of_heads(dq),
            inputs=split_backward_inputs,
            cases=HEAD_CASES,
            cost=copy_cost,
            implementations=COPIES,
        ),
        Operation(
            name="split_heads_bias_backward",
            category="copy",
            schema="(Tensor dq, Tensor dk, Tensor dv) -> (Tensor dqkv, Tensor db)",
            formula="dqkv as split_heads_backward gives it, db = Σ over b and t of dqkv[b,t]: the projection's bias",
            shapes=dict.fromkeys(("dq", "dk", "dv"), "B NH T HS") | {"dqkv": "B T 3C", "db": "3C"},
            reference=split_bias_backward_reference,
            letters=channels_of,
            scalars=lambda dq, dk, dv: sizes_of_heads(dq),
            inputs=split_backward_inputs,
            cases=HEAD_CASES,
            cost=copy_and_sum_cost,
            implementations=versions(
                c=("copied, then column by column", "one pass by threads over parts of the tokens"),
                cuda=("one pass; 16-byte accesses, sums by parts of the tokens, in a fixed order",),
                triton="a head at a time; sums by parts of the tokens, in a fixed order",
            ),
        ),
        Operation(
            name="merge_heads_forward",
            category="copy",
            schema="(Tensor x) -> (Tensor y)",
            formula="y[b, t, h·HS + i] = x[b,h,t,i]",
            shapes={"x": "B NH T HS", "y": "B T C"},
            reference=merge_reference,
            letters=channels_of,
            scalars=sizes_of_heads,
            inputs=merge_inputs,
            cases=HEAD_CASES,
            cost=copy_cost,
            gradient=Gradient("merge_heads_backward", derive={"heads": lambda values: values["x"].shape[1]}),
            implementations=COPIES,
        ),
        Operation(
            name="merge_heads_backward",
            category="copy",
            schema="(Tensor dy, int heads) -> (Tensor dx)",
            formula="dx[b,h,t,i] = dy[b, t, h·HS + i]",
            shapes={"dy": "B T C", "dx": "B NH T HS"},
            reference=merge_backward_reference,
            letters=lambda dy, heads: heads_of(dy, heads, 1),
            scalars=lambda dy, heads: sizes_of_tokens(dy, heads, 1),
            inputs=merge_backward_inputs,
            cases=HEAD_CASES,
            cost=copy_cost,
            implementations=COPIES,
        ),
    ),
)
