"""Attention: the parts around its two matrix products (split into heads, causal softmax, merge of heads), and the whole
of it in one pass over the keys ("flash"), which keeps no T × T matrix, and whose heads of queries may share keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost, TensorSpec
from perfkit.errors import InputError
from perfkit.kernels import Family, Gradient, Implementation, Operation

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

SCALE = 0.3


# ---- split and merge: copies ----------------------------------------------------------------------------------------


def split_reference(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    from perfkit.functional import split_heads

    return split_heads(qkv, heads)


def split_backward_reference(dq: Tensor, dk: Tensor, dv: Tensor) -> Tensor:
    import torch

    return torch.cat([merge_reference(d) for d in (dq, dk, dv)], dim=-1)


def split_bias_backward_reference(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
    dqkv = split_backward_reference(dq, dk, dv)
    return dqkv, dqkv.flatten(0, 1).sum(dim=0)


def merge_reference(x: Tensor) -> Tensor:
    from perfkit.functional import merge_heads

    return merge_heads(x)


def merge_backward_reference(dy: Tensor, heads: int) -> Tensor:
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


# ---- causal softmax -------------------------------------------------------------------------------------------------


def softmax_reference(scores: Tensor, scale: float) -> Tensor:
    from perfkit.functional import causal_softmax

    return causal_softmax(scores, scale)


def softmax_backward_reference(datt: Tensor, att: Tensor, scale: float) -> Tensor:
    queries, keys = datt.shape[-2:]
    past = datt.tril(keys - queries)
    return scale * att * (past - (past * att).sum(dim=-1, keepdim=True))


def past_elements(scores: TensorSpec) -> float:
    """Elements of the past, the query's own among them: the others are never looked at."""
    queries, keys = scores.shape[-2:]
    return scores.numel / max(keys, 1) * (keys - (queries - 1) / 2)


def softmax_sizes(scores: Tensor, scale: float) -> tuple[int | float, ...]:
    """B·NH, T, S, scale. Raises `InputError` where there are more queries than keys."""
    batch, heads, queries, keys = scores.shape
    if queries > keys:
        raise InputError(f"There are {queries} queries for {keys} keys.", "Queries are the last of the keys' tokens.")
    return batch * heads, queries, keys, float(scale)


def softmax_cost(call: Call) -> Cost:
    """6 FLOP a pair of query and past key: ·scale, max, − max, exp, sum, division. All of the result is written."""
    scores = call.tensor(0)
    size, past = ITEM_BYTES[scores.dtype], past_elements(scores)
    return Cost({f"vector_{scores.dtype}": 6.0 * past}, past * size, scores.numel * size)


def softmax_backward_cost(call: Call) -> Cost:
    """5 FLOP a pair of query and past key: datt·att 1, its sum 1, − sum 1, ·att 1, ·scale 1."""
    att = call.tensor(1)
    size, past = ITEM_BYTES[att.dtype], past_elements(att)
    return Cost({f"vector_{att.dtype}": 5.0 * past}, 2 * past * size, att.numel * size)


# ---- flash attention ------------------------------------------------------------------------------------------------


def flash_reference(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = scale * q @ k.transpose(-1, -2)
    time = q.shape[-2]
    past = scores.new_ones(time, time).tril().bool()
    scores = scores.masked_fill(~past, float("-inf"))
    return scores.softmax(dim=-1) @ v, scores.logsumexp(dim=-1)


def flash_backward_reference(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    import torch

    with torch.enable_grad():
        a, b, c = (t.detach().requires_grad_() for t in (q, k, v))
        dq, dk, dv = torch.autograd.grad(flash_reference(a, b, c, scale)[0], (a, b, c), dy)
    return dq, dk, dv


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
    return *(make.normal(B, heads, T, HS) for heads in (NH, NKV, NKV)), HS**-0.5


def flash_backward_inputs(make: Inputs, B: int, NH: int, NKV: int, T: int, HS: int) -> tuple[Any, ...]:
    q, k, v, scale = flash_inputs(make, B, NH, NKV, T, HS)
    y, lse = flash_reference(q.double(), k.double(), v.double(), scale)
    return make.normal(B, NH, T, HS), q, k, v, y.to(make.dtype), lse.float(), scale


def flash_sizes(q: Tensor, k: Tensor, scale: float) -> tuple[int | float, ...]:
    """B·NH, the heads of queries to one of keys, T, HS, scale."""
    batch, heads, time, size = q.shape
    groups = k.shape[1]
    if groups == 0 or heads % groups:
        raise InputError(f"{heads} heads of queries do not share {groups} heads of keys.", "Give a divisor.")
    return batch * heads, heads // groups, time, size, float(scale)


# ---- inputs of checks -----------------------------------------------------------------------------------------------


def split_inputs(make: Inputs, B: int, T: int, NH: int, HS: int) -> tuple[Any, ...]:
    return make.normal(B, T, 3 * NH * HS), NH


def split_backward_inputs(make: Inputs, B: int, T: int, NH: int, HS: int) -> tuple[Any, ...]:
    return tuple(make.normal(B, NH, T, HS) for _ in range(3))


def merge_inputs(make: Inputs, B: int, T: int, NH: int, HS: int) -> tuple[Any, ...]:
    return (make.normal(B, NH, T, HS),)


def merge_backward_inputs(make: Inputs, B: int, T: int, NH: int, HS: int) -> tuple[Any, ...]:
    return make.normal(B, T, NH * HS), NH


def softmax_inputs(make: Inputs, B: int, NH: int, T: int, before: int = 0) -> tuple[Any, ...]:
    return make.normal(B, NH, T, before + T, scale=10.0), SCALE


def softmax_backward_inputs(make: Inputs, B: int, NH: int, T: int, before: int = 0) -> tuple[Any, ...]:
    att = softmax_reference(make.normal(B, NH, T, before + T, scale=10.0).double(), SCALE)
    return make.normal(B, NH, T, before + T), att.to(make.dtype), SCALE


# One token, sizes beside a multiple of the vector width, GPT-2's head.
HEAD_CASES = (
    {"B": 1, "T": 1, "NH": 1, "HS": 1},
    {"B": 2, "T": 5, "NH": 3, "HS": 7},
    {"B": 3, "T": 33, "NH": 2, "HS": 24},
    {"B": 2, "T": 64, "NH": 12, "HS": 64},
)
FLASH_CASES = (
    {"B": 1, "NH": 1, "NKV": 1, "T": 1, "HS": 16},
    {"B": 2, "NH": 3, "NKV": 3, "T": 17, "HS": 16},
    {"B": 2, "NH": 4, "NKV": 2, "T": 70, "HS": 16},
    {"B": 1, "NH": 2, "NKV": 2, "T": 130, "HS": 64},
)
# `before`: keys of tokens before the first query.
SOFTMAX_CASES = (
    {"B": 1, "NH": 1, "T": 1},
    {"B": 2, "NH": 3, "T": 17},
    {"B": 1, "NH": 2, "T": 130},
    {"B": 2, "NH": 1, "T": 9, "before": 31},
    {"B": 1, "NH": 2, "T": 32, "before": 96},
)


def versions(source: str, name: str, naive: str, fast: str) -> tuple[Implementation, ...]:
    return (
        Implementation(1, "c", source, f"{name}_v1", naive),
        Implementation(2, "c", source, f"{name}_v2", fast),
    )


def copies(name: str) -> tuple[Implementation, ...]:
    return (
        *versions("heads.c", name, "element by element", "threads over tokens, whole head rows at a time"),
        Implementation(1, "cuda", "heads.cu", f"{name}_v1", "one element a thread"),
        Implementation(2, "cuda", "heads.cu", f"{name}_v2", "16-byte accesses, two tokens of a thread at once"),
        Implementation(1, "triton", "heads_triton.py", name, "blocks of whole head rows"),
    )


def softmaxes(name: str, triton_is_fastest_in: tuple[str, ...] = ()) -> tuple[Implementation, ...]:
    return (
        *versions("causal_softmax.c", name, "loops over each row", "threads over rows, vectors within"),
        Implementation(1, "cuda", "causal_softmax.cu", f"{name}_v1", "one thread a row"),
        Implementation(2, "cuda", "causal_softmax.cu", f"{name}_v2", "one warp a row, which is read twice"),
        Implementation(3, "cuda", "causal_softmax.cu", f"{name}_v3", "the past stays in registers and is read once"),
        Implementation(
            1,
            "triton",
            "causal_softmax_triton.py",
            name,
            "rows in registers; only the past is read",
            fastest_in=triton_is_fastest_in,
        ),
    )


FAMILY = Family(
    name="attention",
    text=__doc__,
    legend={
        "B": "batch",
        "T": "time",
        "S": "keys, the last T of which are the queries' tokens",
        "C": "channels = NH·HS",
        "NH": "heads",
        "NKV": "heads of keys and values",
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
            implementations=copies("split_heads_forward"),
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
            implementations=copies("split_heads_backward"),
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
            implementations=(
                *versions(
                    "heads.c",
                    "split_heads_bias_backward",
                    "copied, then column by column",
                    "one pass by threads over parts of the tokens",
                ),
                Implementation(
                    1,
                    "cuda",
                    "heads.cu",
                    "split_heads_bias_backward_v1",
                    "one pass; 16-byte accesses, sums by parts of the tokens, in a fixed order",
                ),
                Implementation(
                    1,
                    "triton",
                    "heads_triton.py",
                    "split_heads_bias_backward",
                    "a head at a time; sums by parts of the tokens, in a fixed order",
                ),
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
            implementations=copies("merge_heads_forward"),
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
            implementations=copies("merge_heads_backward"),
        ),
        Operation(
            name="causal_softmax_forward",
            category="softmax",
            schema="(Tensor scores, float scale) -> (Tensor att)",
            formula="att[i,j] = exp(scale·s[i,j]) / Σ over j' ≤ p of exp(scale·s[i,j']) for j ≤ p = i + S − T, else 0",
            shapes={"scores": "B NH T S", "att": "B NH T S"},
            reference=softmax_reference,
            scalars=softmax_sizes,
            inputs=softmax_inputs,
            cases=SOFTMAX_CASES,
            cost=softmax_cost,
            gradient=Gradient("causal_softmax_backward"),
            implementations=softmaxes("causal_softmax_forward"),
        ),
        Operation(
            name="causal_softmax_backward",
            category="softmax",
            schema="(Tensor datt, Tensor att, float scale) -> (Tensor dscores)",
            formula="dscores[i,j] = scale·att[i,j]·(datt[i,j] − Σ over j' of datt[i,j']·att[i,j']), j, j' ≤ p, else 0",
            shapes=dict.fromkeys(("datt", "att", "dscores"), "B NH T S"),
            reference=softmax_backward_reference,
            scalars=lambda datt, att, scale: softmax_sizes(att, scale),
            inputs=softmax_backward_inputs,
            cases=SOFTMAX_CASES,
            cost=softmax_backward_cost,
            # datt − Σ loses digits where att is near 1, and most of the result is far smaller than that.
            tolerance={"fp32": 5e-5, "bf16": 1e-2},
            implementations=softmaxes("causal_softmax_backward", triton_is_fastest_in=("fp32",)),
        ),
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
            # In bf16, p is rounded on its way to the tensor cores; PyTorch's own attention errs by 1.4e-2 at T = 1024.
            tolerance={"fp32": 1e-5, "bf16": 3e-2},
            implementations=(
                Implementation(1, "c", "flash_attention.c", "flash_attention_forward_v1", "a row of scores at a time"),
                Implementation(
                    1,
                    "triton",
                    "flash_attention_triton.py",
                    "flash_attention_forward",
                    "blocks of queries on the tensor cores, online softmax",
                ),
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
            # y arrives rounded, and dy·vᵀ − Σ dy·y is a difference of like numbers. In bf16, p and ds are rounded on
            # their way to the tensor cores too; PyTorch's own attention errs by 4.5e-2 at T = 1024 on a GPU.
            tolerance={"fp32": 5e-5, "bf16": 1e-1},
            implementations=(
                Implementation(1, "c", "flash_attention.c", "flash_attention_backward_v1", "pair by pair"),
                Implementation(
                    1,
                    "triton",
                    "flash_attention_triton.py",
                    "flash_attention_backward",
                    "one kernel for dk and dv, one for dq",
                ),
            ),
        ),
    ),
)
