"""Softmax over the keys of the past, between attention's two matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost, TensorSpec
from perfkit.errors import InputError
from perfkit.kernels import Family, Gradient, Implementation, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

SCALE = 0.3


def softmax_reference(scores: Tensor, scale: float) -> Tensor:
    """Compute `causal_softmax_forward` in plain PyTorch."""
    from perfkit.functional import causal_softmax

    return causal_softmax(scores, scale)


def softmax_backward_reference(datt: Tensor, att: Tensor, scale: float) -> Tensor:
    """The part of datt (…, T, S) above the diagonal does not count."""
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


def softmax_inputs(make: Inputs, B: int, NH: int, T: int, before: int = 0) -> tuple[Any, ...]:
    """Scores (B, NH, T, before + T): `before` keys are older than the first query."""
    return make.normal(B, NH, T, before + T, scale=10.0), SCALE


def softmax_backward_inputs(make: Inputs, B: int, NH: int, T: int, before: int = 0) -> tuple[Any, ...]:
    """Draw datt (B, NH, T, S), att (B, NH, T, S)."""
    att = softmax_reference(make.normal(B, NH, T, before + T, scale=10.0).double(), SCALE)
    return make.normal(B, NH, T, before + T), att.to(make.dtype), SCALE


# `before`: keys of tokens before the first query.
SOFTMAX_CASES = (
    {"B": 1, "NH": 1, "T": 1},
    {"B": 2, "NH": 3, "T": 17},
    {"B": 1, "NH": 2, "T": 130},
    {"B": 2, "NH": 1, "T": 9, "before": 31},
    {"B": 1, "NH": 2, "T": 32, "before": 96},
)


def implementations(triton_fastest_in: tuple[str, ...] = ()) -> tuple[Implementation, ...]:
    """Both directions are written in the same ways."""
    return versions(
        c=("loops over each row", "threads over rows, vectors within"),
        cuda=(
            "one thread a row",
            "one warp a row, which is read twice",
            "the past stays in registers and is read once",
        ),
        triton="rows in registers; only the past is read",
        triton_fastest_in=triton_fastest_in,
    )


FAMILY = Family(
    name="causal_softmax",
    text=__doc__,
    legend={
        "B": "batch",
        "T": "time",
        "S": "keys, the last T of which are the queries' tokens",
        "NH": "heads",
    },
    operations=(
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
            implementations=implementations(),
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
            implementations=implementations(triton_fastest_in=("fp32",)),
        ),
    ),
)
