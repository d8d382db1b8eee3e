"""Attention that a fused kernel would do with less: written out as products and a softmax, or with an explicit mask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perfkit import units
from perfkit.analysis import tensors
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline.roof import Booleans, Reals
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.words import number, percent
from perfkit.hardware.attention import rate_at
from perfkit.profile_names import BACKWARD

_NEAR = 8  # rows between a product and the softmax of its result: scale, mask, dropout, copies
_MATH = (
    "scaled_dot_product_attention is called, and falls back on its math implementation. "
    "torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION) raises with the reason: dtype, mask, head size."
)


def _written_out(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    scores = _scores(case)
    if not scores:
        return
    shapes = case.text("shapes")
    touched = {text: _touches(text, scores) for text in set(shapes)}
    products = case.is_in("family", ("matmul",)) & np.array([touched[text] > 0 for text in shapes], bool)
    others = ~case.is_in("family", ("matmul", "attention", "optimizer")) & np.array(
        [_holds(text, scores) for text in shapes], bool
    )
    rows = case.unclaimed(products | others)
    time = np.nan_to_num(case.judged.time)
    kept = np.where(products, np.fmin(_arithmetic_ns(case), time), 0.0)
    moved = case.per_step(sum(touched[text] for text, one in zip(shapes, rows.tolist(), strict=True) if one))
    largest = sorted(scores, key=lambda score: -score[2])
    sizes = " and ".join(list(dict.fromkeys(f"{t:,} × {s:,}" for t, s, _ in largest))[:2])
    fallen_back = any("scaled_dot_product" in name for name in set(np.array(case.text("operator"), object)[rows]))
    yield rule.finding(
        case,
        f"Attention is written out: products and softmax over {sizes} scores take {units.text(case.time(rows), 'ns')}",
        f"{number(case.per_step(rows.sum()))} kernels{case.a_step} write the scores to memory and read them back, "
        f"at least {units.text(moved, 'B')} of them, in {case.of_whole(case.time(rows))}. A fused attention "
        "keeps them on the chip.",
        case.time(rows),
        case.time(rows) - case.per_step(kept[rows].sum()),
        rows=rows,
        saves=np.where(rows, time - kept, 0.0),
        remedy=_MATH if fallen_back else "",
    )


def _arithmetic_ns(case: Case) -> Reals:
    """Return the time of each row's matrix FLOP at the ceilings; NaN without one."""
    rates = case.ceilings.compute if case.ceilings else {}
    units_ = [name.removeprefix("flop_") for name in case.frame.columns if name.startswith("flop_matrix_")]
    flop = np.nan_to_num(case.frame[[f"flop_{unit}" for unit in units_]].to_numpy(float))
    rate = np.array([rates.get(unit) or np.nan for unit in units_])
    took: Reals = np.where(flop > 0, flop / rate * 1e9, 0.0).sum(axis=1)
    return np.where(flop.any(axis=1), took, np.nan)


def _scores(case: Case) -> set[tuple[int, int, int]]:
    """Rows, columns and number of the scores: what a product makes, a softmax reads soon after, and a product reads."""
    order = np.argsort(case.frame["order"].to_numpy(np.int64), kind="stable").tolist()
    shapes, family = case.text("shapes"), case.text("family")
    found = set[tuple[int, int, int]]()
    for place, i in enumerate(order):
        if family[i] != "softmax" or not (read := [s for _, s in tensors.shapes(shapes[i]) if len(s) >= 3]):
            continue
        t, s, n = *read[0][-2:], tensors.elements(read[0])
        before, after = order[max(place - _NEAR, 0) : place], order[place + 1 : place + 1 + _NEAR]
        made = any(family[j] == "matmul" and _makes(shapes[j], t, s, n) for j in before)
        used = any(family[j] == "matmul" and _holds(shapes[j], {(t, s, n)}) for j in after)
        if t > 1 and made and used:
            found.add((t, s, n))
    return found


def _makes(text: str, t: int, s: int, n: int) -> bool:
    """Return whether a batched product of these operands gives `n` scores in matrices of `t` rows and `s` columns."""
    operands = [shape for _, shape in tensors.shapes(text) if len(shape) >= 3][-2:]
    if len(operands) < 2 or operands[0][-2] != t or operands[1][-1] != s:
        return False
    return tensors.elements(operands[0][:-2]) * t * s == n


def _holds(text: str, scores: set[tuple[int, int, int]]) -> bool:
    """Return whether one of the tensors has the shape of scores, whose batch and heads may be one dimension."""
    return any(len(x) >= 3 and (*x[-2:], tensors.elements(x)) in scores for _, x in tensors.shapes(text))


def _touches(text: str, scores: set[tuple[int, int, int]]) -> int:
    """Bytes of scores that a row with these operands reads and writes."""
    found = list(zip(tensors.shapes(text), tensors.sizes(text), strict=True))
    read = [size for (_, x), size in found if len(x) >= 3 and (*x[-2:], tensors.elements(x)) in scores]
    for t, s, n in scores:
        if len(found) >= 2 and _makes(text, t, s, n):  # the product that makes them
            (_, x), size = found[-1]
            return sum(read) + size * n // max(tensors.elements(x), 1)
    matrix = len([1 for (_, x), _ in found if len(x) >= 3]) >= 2 and len(read) < len(found)
    return sum(read) + (0 if matrix or not read else max(read))


UNFUSED = Rule(
    name="unfused-attention",
    summary="attention is written out as products and a softmax",
    where=ON_BOTH,
    what="softmax(q kᵀ) v as three operators and more writes a matrix of T × T scores a head to memory, and reads it "
    "again for every operator on it: scale, mask, softmax, dropout. A fused attention keeps a tile of it on the chip.",
    recognised="A batched product, within eight kernels a softmax of as many numbers in matrices of the same size, and "
    "within eight a product that reads them; with all kernels, backward ones too, that work on tensors of that shape.",
    estimate="All of their time but that of the products: their arithmetic at the roof, without ceilings as long as "
    "they take now.",
    remedies=(
        "Call torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=…), in transformers "
        "attn_implementation='sdpa'. It has no weights to return: where the program needs those, nothing changes. "
        "Scores with a bias or a soft cap: torch.nn.attention.flex_attention, compiled.",
    ),
    example="A vision transformer over 3137 patches: bmm, scale, softmax and bmm take 127 of 130 ms.",
    find=_written_out,
    rank=5,
)


class _Mask(NamedTuple):
    """A mask among the operands of an attention over `length` places, whose heads have `head` numbers of `dtype`."""

    text: str
    shape: tuple[int, ...]
    length: int
    head: int
    dtype: str


def _masked(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    shapes, family = case.text("shapes"), case.text("family")
    masks = {text: _mask(text) for text in set(shapes)}
    of_row = [masks[s] if f == "attention" else None for f, s in zip(family, shapes, strict=True)]
    rows = np.array([mask is not None for mask in of_row], bool)
    if not rows.any():
        return
    time, example = np.nan_to_num(case.judged.time), next(mask for mask in of_row if mask)
    made = case.unclaimed(_of_masks(case, {mask for mask in of_row if mask}))
    kept, measured = np.where(rows, time / 2, 0.0), False
    for i in np.flatnonzero(rows).tolist():
        mask = of_row[i]
        if mask is not None and (ns := _causal_ns(case, i, mask)) is not None:
            kept[i], measured = ns, True
    saved = case.per_step((time - kept)[rows | made].sum())
    also = f", and {number(case.per_step(made.sum()))} more make or convert it" if made.any() else ""
    rates = " The saving is by the rate of causal attention on this GPU." if measured else ""
    yield rule.finding(
        case,
        f"Attention gets an explicit mask of {example.text}: {units.text(case.time(rows), 'ns')}",
        f"{number(case.per_step(rows.sum()))} kernels{case.a_step} read it and compute all products{also}. Where it is "
        "causal, is_causal=True leaves out half of both; where it masks nothing, no mask does. The profile does not "
        f"hold its values.{rates}",
        case.time(rows | made),
        max(saved, 0.0),
        rows=rows | made,
        saves=np.where(rows | made, np.maximum(time - kept, 0.0), 0.0),
    )


def _of_masks(case: Case, masks: set[_Mask]) -> Booleans:
    """Rows that make a mask, or convert it for a kernel: all others with an operand of its places."""
    places = {mask.length for mask in masks if mask.length != mask.head}
    batches = {(mask.shape[0], mask.length) for mask in masks}
    found = {
        text: any(
            len(x) == 4 and x[-1] in places and x[-2] == x[-1] and (x[0] == 1 or (x[0], x[-1]) in batches)
            for _, x in tensors.shapes(text)
        )
        for text in set(case.text("shapes"))
    }
    others = ~case.is_in("family", ("attention", "matmul", "softmax", "optimizer"))
    return others & np.array([found[text] for text in case.text("shapes")], bool)


def _causal_ns(case: Case, row: int, mask: _Mask) -> float | None:
    """Time of the row as causal attention by PyTorch's fused kernel, ns: half of its products at the rate measured on
    this GPU for such heads and so many places; None where no rate is known for it. A kernel without products, which
    prepares those of another, is part of that rate."""
    rates = case.ceilings.attention if case.ceilings and not case.on_cpu and mask.dtype in ("bf16", "fp16") else []
    backward = case.text("pass")[row] == BACKWARD or "backward" in case.text("operator")[row]
    rate = rate_at(rates, mask.head, mask.length, backward)
    flop = float(case.frame[f"flop_matrix_{mask.dtype}"].iloc[row])
    if rate is None or math.isnan(flop):
        return None
    return flop * (mask.length + 1) / (2 * mask.length) / rate * 1e9


def _mask(text: str) -> _Mask | None:
    """The mask among the operands of an attention of as many queries as keys."""
    found = tensors.shapes(text)
    four = [shape for _, shape in found if len(shape) == 4]
    if len(four) < 4:
        return None
    queries, keys = four[0], four[1]
    t, s, d = queries[-2], keys[-2], queries[-1]
    if t < 2 or t != s:
        return None
    for dtype, shape in found[3:]:
        if len(shape) >= 2 and shape[-2:] == (t, s) and (s != d or shape != queries):
            return _Mask(f"{dtype}[{'×'.join(map(str, shape))}]", shape, t, d, found[0][0])
    return None


MASK = Rule(
    name="needless-mask",
    summary="attention gets an explicit mask where causal, or none, would do",
    where=ON_BOTH,
    what="With an explicit mask an attention computes every product, those that are masked too, and reads the mask for "
    "every head. Told is_causal=True it leaves out half of the blocks. Flash attention takes no mask at all: another, "
    "slower implementation serves in its place, for which PyTorch converts a boolean mask in every call.",
    recognised="An attention whose operands hold, after queries, keys and values, a tensor of T × T numbers, with as "
    "many queries as keys; and the kernels that make or convert such a tensor. Whether it is causal no profile says.",
    estimate="Their time less that of causal attention at the rate that PyTorch's fused kernel reaches on this GPU "
    "with such heads and lengths (`perfkit ceilings`, bf16). On a CPU, in fp32, and where that was not measured: half "
    "of the attention. Nothing where the mask is another.",
    remedies=(
        "Pass no mask where no sequence is padded: is_causal=True. transformers builds a mask from attention_mask: "
        "leave that out, or set attn_implementation='flash_attention_2', which takes lengths. Padding: pack the "
        "sequences (nested tensors, varlen attention). Other masks: flex_attention with a BlockMask skips what is "
        "masked.",
    ),
    example="Llama of transformers with an attention_mask of ones: its masks of T × T cost half of the attention.",
    find=_masked,
    rank=5,
)


def _spatial(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    of_losses = _class_first(case)
    over = case.passing("shapes", lambda text: any(x in of_losses for _, x in tensors.shapes(text)[:1]))
    rows: Booleans = case.named(lambda name: "SpatialSoftMax" in name) | over & case.is_in("family", ("softmax",))
    time = case.time(rows)
    if case.share(time) < _NOTABLE:
        return
    judged = rows & case.judged.judged
    if not judged.any():
        yield rule.cannot(f"they take {case.of_whole(time)}, and their roof is unknown")
        return
    roof, of_judged = case.per_step(case.judged.roof[judged].sum()), case.time(judged)
    if roof >= _SLOW * of_judged:
        return
    shapes = next((text for text, one in zip(case.text("shapes"), judged.tolist(), strict=True) if one), "")
    yield rule.finding(
        case,
        f"Softmax over a dimension that is not the last takes {units.text(time, 'ns')}, at "
        f"{percent(roof / of_judged)} of its roof",
        f"Neighbouring numbers of one softmax lie far apart{f', as in {shapes}' if shapes else ''}.",
        time,
        of_judged - roof,
        rows=rows,
    )


def _class_first(case: Case) -> set[tuple[int, ...]]:
    """Shapes (B, C, T) whose loss goes over C: cross_entropy hands them to nll_loss2d as (B, C, 1, T)."""
    losses = case.passing("operator", _is_loss) | case.named(_is_loss)
    shapes = case.text("shapes")
    four = [x for text in {shapes[i] for i in np.flatnonzero(losses)} for _, x in tensors.shapes(text) if len(x) == 4]
    return {(b, c, t) for b, c, one, t in four if one == 1}


def _is_loss(name: str) -> bool:
    return "nll_loss2d" in name


_NOTABLE, _SLOW = 0.02, 0.5  # of the step; of the roof
TRANSPOSED = Rule(
    name="transposed-softmax",
    summary="a softmax or loss goes over a dimension that is not the last",
    where=ON_BOTH,
    what="cross_entropy of (B, C, T), and softmax(dim=1), read numbers that are T apart. PyTorch has a kernel of its "
    "own for that (cunn_SpatialSoftMax), which is slow where B is small and C large.",
    recognised="Kernels of that name, and softmaxes of a shape (B, C, T) whose loss is nll_loss2d, that take at least "
    "2 % of the step and reach less than half of their roof.",
    estimate="Their time less their roof.",
    remedies=(
        "Put the classes last: cross_entropy(logits.reshape(-1, C), targets.reshape(-1)) of logits (B, T, C), without "
        "transpose(1, 2); softmax(dim=-1) of a tensor that lies so.",
    ),
    example="A language model's loss as cross_entropy(logits.transpose(1, 2), targets): 0.8 % of the bandwidth.",
    find=_spatial,
    rank=5,
)
RULES = (UNFUSED, MASK, TRANSPOSED)
