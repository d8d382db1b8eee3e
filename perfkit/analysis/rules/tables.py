"""Lookups in tables: gathers that memory bounds, and gradients as large as the table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit import units
from perfkit.analysis import tensors
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline.roof import Booleans
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.rules.machine import usual_of
from perfkit.analysis.rules.roof_questions import NEAR
from perfkit.analysis.words import listed, percent

_LOOKUPS = ("aten::index_select", "aten::embedding", "aten::embedding_bag", "aten::_embedding_bag", "aten::gather")
_GATHERS = (*_LOOKUPS, "aten::index")
_TABLES = {"aten::embedding", "aten::embedding_bag", "aten::_embedding_bag"}
_SORTED = (
    "Sort the indices so that neighbours meet in the cache (edges by their source, a renumbered graph), gather once "
    "what several operators need, or multiply by a sparse matrix, which reads and adds up in one pass "
    "(torch.sparse.mm, torch_scatter's segment_csr)."
)
_NOTABLE = 0.02  # of the step
_SPARSE = 4  # times as many rows in a table as are looked up


def _gathers(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    operators = case.operators()
    rows = np.array([o in _GATHERS for o in operators], bool) & case.is_in("family", ("index", "embedding", "other"))
    rows &= ~case.is_in("pass", ("backward",))
    usual, without = usual_of(case, rows)
    time = case.per_step(usual[rows].sum())
    if case.share(time) < _NOTABLE:
        return
    judged = rows & case.judged.judged
    if not judged.any():
        why = "they are too short" if case.report.withheld else "ceilings are missing"
        yield rule.cannot(f"gathers take {case.of_whole(time)}, and {why}")
        return
    roof, of_judged = case.per_step(case.judged.roof[judged].sum()), case.per_step(usual[judged].sum())
    if roof >= NEAR * of_judged:
        return
    moved = np.nansum(case.judged.bytes[judged])
    rate = moved / usual[judged].sum() * 1e9
    logical = {name for name, one in zip(case.text("operator"), rows.tolist(), strict=True) if one}
    tables = {*logical, *(name for name, one in zip(operators, rows.tolist(), strict=True) if one)} & _TABLES
    who = "Embedding lookups take" if tables else f"Gathers by {listed(_short(operators, rows))} take"
    yield rule.finding(
        case,
        f"{who} {case.of_whole(time)}, at {percent(roof / of_judged)} of the bandwidth",
        f"They read rows here and there: {units.text(rate, 'B/s')} of the rows asked for. Memory moves whole cache "
        f"lines, so narrow rows waste part of each.{without}",
        time,
        of_judged - roof,
        rows=rows,
        remedy="" if tables else _SORTED,
    )


def _short(operators: list[str], rows: Booleans) -> list[str]:
    """Names of the operators of `rows` without their namespace."""
    return sorted({name.removeprefix("aten::") for name, one in zip(operators, rows.tolist(), strict=True) if one})


GATHER = Rule(
    name="gather-bound",
    summary="lookups are bound by gathering rows",
    where=ON_BOTH,
    what="A lookup reads rows at random places: no prefetcher helps, each row is a cache or TLB miss of its own, and "
    "rows narrower than a cache line waste bandwidth.",
    recognised="Rows of `embedding`, `embedding_bag`, `index_select` and `gather` outside the backward pass that take "
    "at least 2 % of the step, below 80 % of their roof. Where none is of an embedding, the finding says which "
    "operator gathers.",
    estimate="Their time less their roof: the bytes of the rows that are read, at the measured bandwidth. A gather "
    "rarely reaches that.",
    remedies=(
        "Sort or deduplicate the indices (torch.unique) so that neighbours meet in the cache; use EmbeddingBag for "
        "pooled lookups; hold tables in bf16; look up all features in one table with offsets instead of one by one.",
    ),
    example="26 tables of width 16 looked up one after the other → one table with offsets and a single lookup.",
    find=_gathers,
    rank=11,
)


def _dense(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    operators, shapes, logical = case.operators(), case.text("shapes"), case.text("operator")
    forward = np.array([o in _LOOKUPS for o in operators], bool) & ~case.is_in("pass", ("backward", "optimizer"))
    modules = case.text("module")
    tables: dict[tensors.Shape, list[int]] = {}  # shape → how many rows each lookup in a table of that shape reads
    owners: dict[str, set[tensors.Shape]] = {}  # module → shapes of the tables in which it looks up
    for i in np.flatnonzero(forward).tolist():
        operands = [shape for _, shape in tensors.shapes(shapes[i])]
        if len(operands) >= 2 and len(operands[0]) == 2:
            tables.setdefault(operands[0], []).append(tensors.elements(operands[1]))
            owners.setdefault(modules[i], set()).add(operands[0])
    large = {shape for shape, looked_up in tables.items() if shape[0] > _SPARSE * max(*looked_up, 1)}
    large -= _multiplied(case)
    if not large:
        return
    touches = np.array([any(s in large for _, s in tensors.shapes(text)) for text in shapes], bool)
    theirs = [
        ("embedding" in logical[i] or "index_select" in logical[i])
        and _looked_up(shapes[i], owners.get(modules[i]), set(tables)) <= large
        for i in range(len(shapes))
    ]
    zeroing = (
        case.is_in("pass", ("backward",))
        & case.is_in("family", ("fill", "embedding"))
        & (touches | np.array(theirs, bool))
    )
    updating = case.is_in("pass", ("optimizer",)) & touches
    if not updating.any() and not any("embedding" in logical[i] for i in np.flatnonzero(forward).tolist()):
        return  # rows of activations, which no optimizer holds
    usual, without = usual_of(case, zeroing | updating)
    # One call may update many tensors: the tables' part of it is their part of its numbers.
    read = np.nan_to_num(case.frame["bytes_read"].to_numpy(float))
    usual = usual.copy()
    usual[updating] *= [_part(shapes[i], large, read[i]) for i in np.flatnonzero(updating).tolist()]
    backward, optimizer = case.per_step(usual[zeroing].sum()), case.per_step(usual[updating].sum())
    time = backward + optimizer
    rows = case.per_step(sum(shape[0] * len(tables[shape]) for shape in large))
    looked = case.per_step(sum(sum(tables[shape]) for shape in large))
    yield rule.finding(
        case,
        f"Dense gradients of embedding tables take {units.text(time, 'ns')}{case.a_step}",
        f"A step looks up at most {looked:,.0f} of {rows:,.0f} rows, and writes and updates all of them: backward "
        f"{units.text(backward, 'ns')}, optimizer {units.text(optimizer, 'ns')}.{without}",
        time,
        time * (1 - min(1.0, looked / rows)),
        rows=zeroing | updating,
    )  # fmt: skip


def _looked_up(text: str, of_module: set[tensors.Shape] | None, tables: set[tensors.Shape]) -> set[tensors.Shape]:
    """Shapes of the tables of which a lookup's backward row with the shapes `text` may be: those that it names, else
    those of its module, else all of `tables`."""
    return {shape for _, shape in tensors.shapes(text)} & tables or of_module or tables


def _part(text: str, tables: set[tensors.Shape], read: float) -> float:
    """The part of a row's bytes that is in tensors of the shapes of `tables`: of those that it reads, where its text
    leaves some of its tensors out; 0 where that is unknown."""
    sizes = list(zip([shape in tables for _, shape in tensors.shapes(text)], tensors.sizes(text), strict=True))
    own = sum(size for is_own, size in sizes if is_own)
    whole = read if "…" in text else float(sum(size for _, size in sizes))
    return min(1.0, own / whole) if whole > 0 else 0.0


def _multiplied(case: Case) -> set[tensors.Shape]:
    """Shapes of operands of matrix products, both ways round: a table that is one as well (the weights of a language
    model's last layer) has a gradient in every row."""
    products = set(np.array(case.text("shapes"), object)[case.is_in("family", ("matmul",))].tolist())
    found = {shape for text in products for _, shape in tensors.shapes(text)}
    return found | {shape[::-1] for shape in found}


DENSE = Rule(
    name="dense-embedding-gradient",
    summary="all rows of a table are zeroed and updated for the few that were looked up",
    where=ON_BOTH,
    what="By default the gradient of an embedding table is as large as the table: it is filled with zeros, the rows "
    "looked up are added, and the optimizer goes over everything.",
    recognised=f"A table with more than {_SPARSE} times as many rows as one lookup reads, with the rows of its "
    "backward pass and those of the optimizer that have its shape, of one call for many tensors (fused, foreach) the "
    "table's part of the numbers. Left out is a table that a matrix product uses too, "
    "as the last layer of a language model does: all of its rows have a gradient.",
    estimate="Their time, for the share of rows that nobody looked up.",
    remedies=(
        "Use sparse=True with SparseAdam, SGD or Adagrad. (Moments of rows that were not looked up then stay as they "
        "are: the result is not the same as Adam's.)",
    ),
    example="`nn.Embedding(1_000_000, 16, sparse=True)` with `torch.optim.SparseAdam`.",
    find=_dense,
    rank=11,
)
RULES = (GATHER, DENSE)
