"""The tables of docs/costs.md, made from the registry of costs."""

from __future__ import annotations

import textwrap

from perfkit.cost.operators import OPERATORS
from perfkit.cost.registry import FAMILIES, KINDS, Operator

_LEGENDS = {
    "matmul": "B batch, M, N rows and columns of the result, K the summed dimension.",
    "attention": "B batch, H query heads, Q queries, K keys, D head size, E head size of the values. The softmax of a "
    "score is 6 forward (scale, max, subtract, exp, sum, divide) and 8 backward (scale, subtract, exp to recompute; "
    "multiply, row sum, subtract, multiply, scale); backward has five products, one of which recomputes the scores.",
    "normalization": "A row is one set of statistics. Forward per element: sum, x−µ, square, sum, ·1/σ; per row: two "
    "divisions, +ε, √ and reciprocal.",
    "elementwise": "Elements of the result, after broadcasting. A name with (_) also exists in place.",
    "reduction": "Elements of the input; K the window of a pooling.",
    "embedding": "L lookups, R rows of the table, D row length. Zeroing a gradient is an operator of its own.",
    "optimizer": "AdamW: decay 1; first moment 3; second moment 4; √v̂ 2, +ε 1; update 3.",
    "index": "L indices, R rows.",
    "convolution": "N batch, O output and I input channels, G groups, K window, S output positions (of a transposed "
    "convolution: input positions).",
}

_WITHOUT_WORK = {
    "view": "Views: another look at the same storage.",
    "dispatch": "Dispatch: composites without a formula; the operators that they call do the work.",
    "allocation": "Allocation: memory without a value.",
    "sync": "Sync: waits for a value.",
}


def markdown() -> str:
    """One table a family, then the operators without work by kind."""
    parts = [_family_table(family) for family in FAMILIES]
    parts += [_names_of_kind(kind) for kind in KINDS if kind in _WITHOUT_WORK]
    return "\n".join(part for part in parts if part)


def _short(name: str) -> str:
    return f"`{name.removeprefix('aten::')}`"


def _spelled(names: list[str]) -> list[str]:
    """Names for a cell: one that also exists in place stands once, with (_)."""
    in_place = {n for n in names if n.endswith("_") and n[:-1] in names}
    return [_short(f"{n}(_)" if f"{n}_" in in_place else n) for n in names if n not in in_place]


def _family_table(family: str) -> str:
    groups: dict[tuple[str, str, str], list[Operator]] = {}
    for operator in OPERATORS.values():
        if operator.family == family and operator.cost is not None:
            kind = "" if operator.kind == "work" else operator.kind
            groups.setdefault((operator.flop, operator.traffic, kind), []).append(operator)
    if not groups:
        return ""
    legend = [_prose(_LEGENDS[family]), ""] if family in _LEGENDS else []
    lines = [f"### {family}", "", *legend, "| operators | FLOP | bytes: read; written |", "|---|---|---|"]
    for (flop, traffic, kind), operators in groups.items():
        note = f" ({kind})" if kind else ""
        names = " ".join(_spelled([o.name for o in operators]))
        lines.append(f"| {names}{note} | {_cell(flop)} | {_cell(traffic)} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _names_of_kind(kind: str) -> str:
    names = [o.name for o in OPERATORS.values() if o.kind == kind and o.cost is None]
    return _prose(f"**{_WITHOUT_WORK[kind]}** {' '.join(_short(n) for n in sorted(names))}") + "\n"


def _prose(text: str) -> str:
    return textwrap.fill(text, 124, break_long_words=False, break_on_hyphens=False)
