"""The truth about where kernels of `widths_gpt2.py` belong, from the shapes in a profile alone.

Every layer has its own width, so a kernel whose arguments have widths of one layer is of that layer, and one with
widths of two layers or of none is of none. The pass follows from the order: a step is in its forward from the product
that enters layer 0 on, and in its backward from the first product that reduces over the vocabulary on. Kernels without
a dimension of the activations (the optimizer's, constants) cannot be judged, nor can what copies a product's result to
its place: it has the widths of the result alone. Nothing here looks at a place column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tests.support.whole.widths_gpt2 import BATCH, BEFORE, BEHIND, HEADS, TIME, VOCABULARY, WIDTHS

ROWS = BATCH * TIME
PADDED = -(-VOCABULARY // 64) * 64
OF_LAYER = [{C, 3 * C, 4 * C, C // HEADS} for C in WIDTHS]
OUTSIDE = {BEFORE, BEHIND, VOCABULARY, PADDED}
FORWARD, BACKWARD = ("encoder", "forward", "classifier"), ("backward",)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "addmm_", "_linear_pointwise")
_COPIES = ("copy_", "add_")
_TENSOR = re.compile(r"\w+\[([\d×]*)\]")


@dataclass(frozen=True)
class Judged:
    """A row that shapes describe completely: its position in the frame, whether it is backward, and layer or None."""

    row: int
    backward: bool
    layer: int | None
    product: bool


def dimensions(shapes: Any) -> list[tuple[int, ...]]:
    """`fp32[51×40], fp32[40×120]` → [(51, 40), (40, 120)]."""
    found = _TENSOR.findall(shapes) if isinstance(shapes, str) else []
    return [tuple(int(n) for n in text.split("×") if n) for text in found]


def judge(frame: Any) -> list[Judged]:
    """Return the rows of a kernel table's frame whose place shapes determine."""
    names = [str(n).rpartition("::")[2].partition(".")[0] for n in frame["name"]]
    shapes = [dimensions(s) for s in frame["shapes"].fillna("")]
    backward = False
    before = ""
    found = []
    for row in frame["start_ns"].to_numpy().argsort(kind="stable").tolist():
        product = names[row] in _PRODUCTS
        matrices = [s for s in shapes[row] if len(s) > 1]
        if product and len(matrices) > 1:
            first, second = matrices[0], matrices[1]
            if {first[-1], second[-2], second[-1]} == {BEFORE, WIDTHS[0]} and first[-1] == BEFORE:
                backward = False
            if {VOCABULARY, PADDED} & set(first):
                backward = True
        copies, before = before in _PRODUCTS and names[row] in _COPIES, names[row]
        if copies:
            continue
        numbers = {n for s in shapes[row] for n in s}
        # The position embedding is T rows long: an optimizer that steps all parameters at once has them too.
        if numbers & {ROWS, TIME} and not names[row].startswith("_fused_adam"):
            layers = [layer for layer, widths in enumerate(OF_LAYER) if numbers & widths]
            alone = len(layers) == 1 and not numbers & OUTSIDE
            if alone or layers or (numbers & OUTSIDE and product):
                found.append(Judged(row, backward, layers[0] if alone else None, product))
    return found


def score(frame: Any, places: Any, judged: list[Judged]) -> float:
    """The share of the judged rows' time that `places` (`perfkit.tree.places`) has in the right pass and layer."""
    truth = {j.row: j for j in judged}
    total = sum(float(frame["duration_ns"].iloc[row]) for row in truth)
    right = 0.0
    layers = places["layer"].astype(object).where(places["layer"].notna(), None)
    for row, pass_, layer, share in zip(places["row"], places["pass"], layers, places["share"], strict=True):
        if row in truth and pass_ in (BACKWARD if truth[row].backward else FORWARD) and layer == truth[row].layer:
            right += float(frame["duration_ns"].iloc[row]) * share
    return right / total
