"""All of attention in one pass over the keys ("flash"): no T × T matrix is kept; heads of queries may share keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost, TensorSpec
from perfkit.errors import InputError
from perfkit.kernels import Family, Gradient, Implementation, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def flash_reference(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """y (B, NH, T, HS) and the logsumexp of each query's scores; heads of queries share those of k and v."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = scale * q @ k.transpose(-1, -2)
    time = q.shape[-2]
    past = scores.new_ones(time, time).tril().bool()
    scores = scores.masked_fill(~past, float("-inf"))
    return scores.softmax(dim=-1) @ v, scores.logsumexp(dim=-1)


def flash_backward_reference(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv by the formula, from y and lse as they are given.

    The rounding of y is not an error of the kernel: in bf16 the gradients of a query with few keys differ by
    more than the kernel's own rounding does.
    """
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = scale * q @ keys.transpose(-1, -2)
    past = scores.new_ones(q.shape[-2], q.shape[-2]).tril().bool()
    p = (scores - lse.unsqueeze(-1)).exp().masked_fill(~past, 0.0)
    each, own = dy @ values.transpose(-1, -2), (dy * y).sum(-1, keepdim=True)
    same = (each - own).abs() <= 1e-13 * (each.abs() + own.abs())  # of a single key nothing is left
    ds = p * (each - own).masked_fill(same, 0.0)
    dk, dv = scale * ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ dy
    return scale * ds @ keys, *(x.unflatten(1, (-1, group)).sum(2) for x in (dk, dv))


def pairs(q: TensorSpec) -> float:
    """Pairs of a query and a key not after it, over all heads."""
    batch, heads, time, _ = q.shape
    return batch * heads * time * (time + 1) / 2


def flash_cost(call: Call) -> Cost:
    """A pair of query and past key: two products of 2·HS FLOP (q·k, p·v), and the softmax's 6. lse is in fp32."""
    q, k, v = (call.tensor(i) for i in range(3))
    rows, size = q.numel // max(q.shape[-1], 1), q.shape[-1]
    flop = {f"matrix_{q.dtype}": 4.0 * size * pairs(q), f"vector_{q.dtype}": 6.0 * pairs(q)}
    return Cost(flop, q.nbytes + k.nbytes + v.nbytes, q.numel * ITEM_BYTES[q.dtype] + rows * ITEM_BYTES["fp32"])


def flash_backward_cost(call: Call) -> Cost:
    """A pair: five products of 2·HS FLOP (q·k, dy·v, and dq, dk, dv), 5 for p and ds, a row's dy·y."""
    q, k = call.tensor(1), call.tensor(2)
    flop = {
        f"matrix_{q.dtype}": 10.0 * q.shape[-1] * pairs(q),
        f"vector_{q.dtype}": 6.0 * pairs(q) + 2.0 * q.numel,
    }
    return Cost(flop, sum(t.nbytes for t in call.tensors), (q.numel + 2 * k.numel) * ITEM_BYTES[q.dtype])


def flash_inputs(make: Inputs, B: int, NH: int, NKV: int, T: int, HS: int) -> tuple[Any, ...]:
    """Draw q (B, NH, T, HS), k (B, NKV, T, HS), v (B, NKV, T, HS)."""
    return *(make.normal(B, heads, T, HS) for heads in (NH, NKV, NKV)), HS**-0.5


def flash_backward_inputs(make: Inputs, B: int, NH: int, NKV: int, T: int, HS: int) -> tuple[Any, ...]:
    """Draw the arguments of `flash_attention_backward`."""
    q, k, v, scale = flash_inputs(make, B, NH, NKV, T, HS)
    y, lse = flash_reference(q.double(), k.double(), v.double(), scale)
    return make.normal(B, NH, T, HS), q, k, v, y.to(make.dtype), lse.float(), scale


def flash_growth(sizes: Mapping[str, int]) -> float:
    """Means over T values are as small as 1/√T, so rounding errors are larger relative to them by the same factor."""
    return max(1.0, (sizes.get("T", 0) / 1024) ** 0.5)


def flash_sizes(q: Tensor, k: Tensor, scale: float) -> tuple[int | float, ...]:
    """B·NH, the heads of queries to one of keys, T, HS, scale."""
    batch, heads, time, size = q.shape
    groups = k.shape[1]
    if groups == 0 or heads % groups:
        raise InputError(f"{heads} heads of queries do not share {groups} heads of keys.", "Give a divisor.")
    return batch * heads, heads // groups, time, size, float(scale)


def on_hopper(text: str) -> Implementation:
    """Version 2, in CUDA C++, for bf16 alone; calls that are not for it run Triton's version 1."""
    return Implementation(2, "cuda", "", "", text, dtypes=("bf16",))


FLASH_CASES = (
    {"B": 1, "NH": 1, "NKV": 1, "T": 1, "HS": 16},
    {"B": 2, "NH": 3, "NKV": 3, "T": 17, "HS": 16},
    {"B": 2, "NH": 4, "NKV": 2, "T": 70, "HS": 16},
    {"B": 1, "NH": 2, "NKV": 1, "T": 200, "HS": 128},
    {"B": 1, "NH": 2, "NKV": 2, "T": 130, "HS": 64},
)


FAMILY = Family(
    name="flash_attention",
    text=__doc__,
    legend={
        "B": "batch",
        "T": "time",
        "NH": "heads",
        "NKV": "heads of keys and values",
        "HS": "head size",
    },
    operations=(
        Operation(
            name="flash_attention_forward",
            category="attention",
            schema="(Tensor q, Tensor k, Tensor v, float scale) -> (Tensor y, Tensor lse)",
            formula="s[i,j] = scale·q[i]·k[j] for j ≤ i: lse[i] = log Σ over j ≤ i of exp(s[i,j]), "
            "y[i] = Σ over j ≤ i of exp(s[i,j] − lse[i])·v[j]; NH / NKV heads in a row use the same k and v",
            shapes={"q": "B NH T HS", "k": "B NKV T HS", "v": "B NKV T HS", "y": "B NH T HS", "lse": "B NH T"},
            dtypes={"lse": "fp32"},
            reference=flash_reference,
            scalars=lambda q, k, v, scale: flash_sizes(q, k, scale),
            inputs=flash_inputs,
            cases=FLASH_CASES,
            cost=flash_cost,
            gradient=Gradient("flash_attention_backward"),
            # In bf16, p is rounded on its way to the tensor cores; PyTorch's own attention is off by 1.4e-2 at T =
            # 1024.
            tolerance={"fp32": 1e-5, "bf16": 3e-2},
            growth=flash_growth,
            implementations=(
                *versions(
                    c=("a row of scores at a time",), triton="blocks of queries on the tensor cores, online softmax"
                ),
                on_hopper("wgmma and TMA: the softmax of some queries while others' products run"),
            ),
        ),
        Operation(
            name="flash_attention_backward",
            category="attention",
            schema="(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y, Tensor lse, float scale)"
            " -> (Tensor dq, Tensor dk, Tensor dv)",
            formula="p = exp(scale·q·kᵀ − lse), ds = p·(dy·vᵀ − Σ dy·y): dq = scale·ds·k, dk = scale·dsᵀ·q, "
            "dv = pᵀ·dy, over keys not after the query",
            shapes=dict.fromkeys(("dy", "q"), "B NH T HS")
            | dict.fromkeys(("k", "v"), "B NKV T HS")
            | {"y": "B NH T HS", "lse": "B NH T", "dq": "B NH T HS", "dk": "B NKV T HS", "dv": "B NKV T HS"},
            dtypes={"lse": "fp32"},
            reference=flash_backward_reference,
            scalars=lambda dy, q, k, v, y, lse, scale: flash_sizes(q, k, scale),
            inputs=flash_backward_inputs,
            cases=FLASH_CASES,
            cost=flash_backward_cost,
            # Parts of the seven products that both kernels make (each makes q·k and dy·v again).
            parts={
                "flash_attention_backward_keys_kernel": 4 / 7,
                "flash_attention_backward_queries_kernel": 3 / 7,
            },
            # dy·vᵀ − Σ dy·y is a difference of like numbers, and lse arrives in fp32. In bf16, p and ds are rounded on
            # their way to the tensor cores: the formula itself is off by 2.3e-2 to 7.8e-2 in thirty draws at T = 1024.
            tolerance={"fp32": 5e-5, "bf16": 1.5e-1},
            growth=flash_growth,
            implementations=(
                *versions(c=("pair by pair",), triton="one kernel for dk and dv, one for dq"),
                on_hopper("wgmma and TMA: dk, dv and dq in one kernel, dq summed in memory"),
            ),
        ),
    ),
)
