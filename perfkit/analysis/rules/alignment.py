"""Matrix products whose rows do not begin on 16-byte boundaries: tensor cores get their operands in small pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from perfkit import units
from perfkit.analysis import tensors
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline.roof import Booleans, Reals
from perfkit.analysis.rules.base import ON_A_GPU, Case, Rule
from perfkit.analysis.words import listed, number

WHOLE = 16  # bytes that a thread loads at once, where rows begin on a multiple of them
_NAMED = 4
PAD = 64  # numbers: sizes that are multiples of these fit the tiles of all kernels too
_SIZES = {"tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}  # bytes of an operand's number by matrix unit
_ALIGN = re.compile(r"tensorop\w*_align(\d+)")  # CUTLASS names how many numbers a load may take


def _unaligned(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    for unit, size in _SIZES.items():
        flop = np.nan_to_num(case.frame[f"flop_matrix_{unit}"].to_numpy(float))
        products = (flop > 0) & case.is_in("family", ("matmul",)) & np.isfinite(case.judged.time)
        rows = case.unclaimed(products & case.named(partial(_narrow, size)))
        if rows.any():
            yield _told(rule, case, rows, flop, products & ~rows, unit, WHOLE // size)


def _narrow(size: int, name: str) -> bool:
    """Return whether a kernel loads less than 16 bytes of numbers of `size` bytes at a time."""
    found = _ALIGN.search(name)
    return found is not None and int(found[1]) * size < WHOLE


def _told(
    rule: Rule, case: Case, rows: Booleans, flop: Reals, others: Booleans, unit: str, multiple: int
) -> Finding | Unjudged:
    took = case.judged.time[others].sum()  # 0 where all are shorter than the trace resolves
    aligned = flop[others].sum() / took if took else 0.0
    roof = np.nan_to_num(case.judged.roof)
    takes = np.maximum(flop / aligned if aligned else 0.0, roof)
    if not (takes[rows] > 0).all():
        return rule.cannot("it has neither ceilings nor another product of that precision")
    time, least = case.time(rows), case.per_step(np.minimum(takes, case.judged.time)[rows].sum())
    rate = units.text(flop[rows].sum() / case.judged.time[rows].sum() * 1e9, "FLOP/s")
    reached = units.text(aligned * 1e9, "FLOP/s")
    beside = f"; the profile's other {unit} products reach {reached}" if aligned else ""
    count = f"{case.per_step(rows.sum()):,.0f} {unit} products{case.a_step}"
    fast = case.per_step((rows & (takes >= case.judged.time)).sum())
    faster = f" Kernel by kernel, those that are as fast already ({number(fast)}) save nothing." if fast else ""
    return rule.finding(
        case,
        f"{count} have rows off {WHOLE}-byte boundaries: {units.text(time, 'ns')}, {rate}",
        f"Their kernels are those for rows that do not begin on {WHOLE} bytes (align1, align2 or align4 in the name)"
        f"{beside}.{faster} {_why(case, rows, multiple)}",
        time,
        time - least,
        rows=rows,
    )  # fmt: skip


def _why(case: Case, rows: Booleans, multiple: int) -> str:
    """The sizes that cause it, the largest first, where the profile has shapes."""
    texts = np.array(case.text("shapes"), object)[rows]
    sizes = {n for text in set(texts) for _, shape in tensors.shapes(text) for n in shape if n % multiple}
    if not sizes:
        return ""
    odd = sorted(sizes, reverse=True)[:_NAMED]
    padded = listed([str(-(-n // PAD) * PAD) for n in odd])
    return f"No multiple of {multiple}: {listed([str(n) for n in odd])}; padded: {padded}."


RULES = (
    Rule(
        name="unaligned-product",
        summary="products of an odd size keep the matrix units waiting for their operands",
        where=ON_A_GPU,
        what="Tensor cores are fed by loads of 16 bytes. Where the rows of an operand or of the result are not a "
        "multiple of that, 8 numbers of bf16, the library falls back on kernels that load four numbers at most.",
        recognised="Products on tensor cores by CUTLASS kernels that name an alignment below 16 bytes. Kernels of "
        "others do not name theirs.",
        estimate="Kernel by kernel, its time less what the same FLOP take at the rate of the profile's other products "
        "of the same precision, or at the roof if there are no others, or if that takes longer. A kernel that is as "
        "fast already saves nothing.",
        remedies=(
            "Pad the odd size to a multiple of 64: the vocabulary, the classes, the features. The rows that are added "
            "are never looked up, and their logits are left out of the loss. torch.compile pads by itself where it "
            "sees the whole product.",
        ),
        example="GPT-2's vocabulary of 50257 in bf16 on an H100: the head's three products take 30 ms of a step of 75 "
        "ms, and 6 ms with 50304.",
        find=_unaligned,
        rank=60,
    ),
)
