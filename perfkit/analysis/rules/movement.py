"""Data that moves for no reason, and lookups that compare with everything."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import numpy as np

from perfkit import units
from perfkit.analysis import tensors
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline.excluded import ON_GPU
from perfkit.analysis.roofline.roof import Booleans
from perfkit.analysis.rules.base import ON_A_GPU, ON_BOTH, Case, Rule
from perfkit.analysis.words import listed, number, operands

_NAMED = 3
_SEARCHES = {f"aten::{name}" for name in ("argmax", "argmin", "max", "any", "nonzero")}
_FOLLOWING = 12  # rows after a comparison that are asked whether they take its result
_BROAD = 4  # times as many elements as the larger operand: a comparison of everything with everything
_SMALL_BYTES = 64 * 1024.0
_LONGEST_CALL = 20e3  # ns on the host: what takes longer copies much, or waits
_AHEAD = 100e3  # ns from a launch to the start of its kernel: from here on the GPU does not wait for calls
_MANY = 8  # small copies a step
_CONVERSIONS = ("aten::to", "aten::_to_copy", "aten::type_as")
_LAYOUTS = ("aten::contiguous", "aten::clone", "aten::reshape", "aten::channel_shuffle", "aten::flatten")
_LAYOUT_KERNEL = re.compile(r"nchwToNhwc|nhwcToNchw|nchw_to_nhwc|nhwc_to_nchw", re.IGNORECASE)


def _compare(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    operators, shapes = case.operators(), case.text("shapes")
    rows = np.zeros(len(operators), bool)
    if "aten::eq" not in operators:
        return
    steps, streams, modules = case.frame["step"].tolist(), case.frame["stream"].tolist(), case.text("module")
    comparisons = 0
    for i in np.flatnonzero([name == "aten::eq" for name in operators]).tolist():
        result = _all_with_all(shapes[i])
        if result is None:
            continue
        here = (steps[i], streams[i], modules[i])
        uses = [
            j
            for j in range(i + 1, min(i + 1 + _FOLLOWING, len(operators)))
            if (steps[j], streams[j], modules[j]) == here
            and operators[j] != "aten::eq"
            and any(shape == result for _, shape in tensors.shapes(shapes[j]))
        ]
        if not _SEARCHES & {operators[j] for j in uses}:
            continue  # a mask is compared so too, and nobody searches it
        comparisons += 1
        rows[[i, *uses]] = True
    if not comparisons:
        return
    time = case.time(rows)
    by_name: dict[str, float] = {}
    for i in np.flatnonzero(rows).tolist():
        by_name[operators[i]] = by_name.get(operators[i], 0.0) + float(np.nan_to_num(case.judged.time[i]))
    parts = [
        f"{name.removeprefix('aten::')} {units.text(case.per_step(ns), 'ns')}"
        for name, ns in sorted(by_name.items(), key=lambda item: -item[1])[:4]
    ]
    yield rule.finding(
        case,
        f"{number(case.per_step(comparisons))} lookups{case.a_step} compare with all values, in {case.of_whole(time)}",
        f"Each makes a tensor of every index against every known value, and then searches it: {listed(parts)}.",
        time,
        time,
        rows=rows,
    )


@functools.lru_cache(maxsize=4096)
def _all_with_all(text: str) -> tensors.Shape | None:
    """The shape of the result of a comparison that multiplies out two tensors; None for an ordinary one."""
    result = tensors.broadcast(text)
    operands = [tensors.elements(shape) for _, shape in tensors.shapes(text)]
    if result is None or len(operands) != 2 or min(operands) < 2:
        return None
    return result if tensors.elements(result) >= _BROAD * max(operands) else None


COMPARE = Rule(
    name="compare-with-all",
    summary="a lookup compares each index with all known values",
    where=ON_BOTH,
    what="`(x.unsqueeze(-1) == known).argmax(-1)`, or `.nonzero()`, finds the place of each x by comparing it with "
    "every known value: B × N comparisons, a tensor of B × N, a conversion and a search over it, for B numbers.",
    recognised="A comparison (`aten::eq`) whose result has at least four times as many elements as either operand, "
    "with the rows after it in the same module that take a tensor of that shape, one of which searches it (argmax, "
    "nonzero, any, …): a mask is not a lookup.",
    estimate="All of the time of these rows: a lookup that reads each index once is far below them. In a backward pass "
    "nothing changes, for indices have no gradient.",
    remedies=(
        "Map values to places once, when the data is prepared; or hash them into the table (x % rows).",
        "With known values sorted, torch.searchsorted needs log₂ N comparisons each.",
    ),
    example="DLRM's `index-hash-tensor` → `modulus-hash`.",
    find=_compare,
    rank=6,
)


def _bytes(case: Case) -> np.ndarray:
    return np.nan_to_num(case.judged.bytes, nan=np.inf)


def _small(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    copies = case.is_in("kind", ("memcpy",))
    moved = {c["name"]: c for c in case.facts.get("copies") or []}
    small = copies & (_bytes(case) <= _SMALL_BYTES)
    for name, known in moved.items():  # bytes that the rows do not have
        if known["bytes"] is not None and known["count"] and known["bytes"] / known["count"] <= _SMALL_BYTES:
            small |= copies & (case.frame["name"] == name).to_numpy(bool, na_value=False)
    count = case.per_step(small.sum())
    if count < _MANY:
        if case.per_step(copies.sum()) >= _MANY and not moved and not np.isfinite(case.judged.bytes[copies]).any():
            yield rule.cannot("the profile does not have the size of its copies")
        return
    time = case.time(small)
    launch = _launch_ns(case) * count
    yield rule.finding(
        case,
        f"{number(count)} copies{case.a_step} move at most {units.text(_SMALL_BYTES, 'iB')} each",
        f"They take {units.text(time, 'ns')} on the GPU, nearly all of it start and end, and their calls "
        f"{units.text(launch, 'ns')} on the host.",
        time,
        max(time, min(launch, _idle(case)) if _late(case) else 0.0),
        rows=small,
    )


def _launch_ns(case: Case) -> float:
    """Return the time of one call that copies, on the host."""
    calls = [c for c in case.facts.get("api") or [] if "Memcpy" in c["name"]]
    count = sum(c["count"] for c in calls)
    return min(sum(c["ns"] for c in calls) / count, _LONGEST_CALL) if count else 0.0


def _late(case: Case) -> bool:
    """Return whether the host is hardly ahead of the GPU, so that its own time counts."""
    lead = (case.facts.get("launch_delay") or {}).get("median_ns")
    return lead is None or lead < _AHEAD


def _idle(case: Case) -> float:
    account = case.report.accounting
    return sum(gap.time_ns for gap in account.gaps) if account else 0.0


SMALL = Rule(
    name="small-copies",
    summary="many small copies between host and GPU, or on it",
    where=ON_A_GPU,
    what="A copy of a few bytes takes some µs on the GPU and some on the host, whatever its size. Dozens of them a "
    "step come of values moved one by one.",
    recognised=f"At least {_MANY} copies a step of 64 KiB or less.",
    estimate="Their time on the GPU; or, where that is more and the host less than 100 µs ahead, what their calls take "
    "on the host, as far as the GPU "
    "idles.",
    remedies=("Pack the values into one tensor and copy once; keep on the GPU what every step needs.",),
    example="26 index lists copied one by one → one stacked tensor of (26, B).",
    find=_small,
    rank=6,
)


def _copies_of(case: Case, names: tuple[str, ...]) -> Booleans:
    """Rows on the device itself that copy for operators of `names`, outside the optimizer."""
    chosen, outside = case.is_in("operator", names), ~case.is_in("pass", ("optimizer",))
    rows: Booleans = case.is_in("family", ("copy",)) & ~case.is_in("kind", ("memcpy",)) & chosen & outside
    return rows


def _conversions(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    rows, shapes = _copies_of(case, _CONVERSIONS), case.text("shapes")
    for i in np.flatnonzero(rows).tolist():
        rows[i] = len({dtype for dtype, _ in tensors.shapes(shapes[i])}) > 1
    yield from _needless(rule, case, rows, "convert from one dtype to another")


def _layouts(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    by_name = case.named(lambda name: bool(_LAYOUT_KERNEL.search(name)))
    rows = _copies_of(case, _LAYOUTS) | (by_name & case.is_in("kind", ON_GPU))
    yield from _needless(rule, case, rows, "write tensors again in another layout")


def _needless(rule: Rule, case: Case, rows: Booleans, what: str) -> Iterator[Finding]:
    rows = case.unclaimed(rows)
    if not rows.any():
        return
    time, shapes = case.time(rows), case.text("shapes")
    operators = case.text("operator")
    total: dict[str, float] = {}
    for i in np.flatnonzero(rows).tolist():
        key = f"{operators[i].removeprefix('aten::') or 'kernel'} of {operands(shapes[i]) or 'unknown shapes'}"
        total[key] = total.get(key, 0.0) + float(np.nan_to_num(case.judged.time[i]))
    largest = sorted(total.items(), key=lambda item: -item[1])[:_NAMED]
    moved = case.per_step(np.nansum(case.judged.bytes[rows]))
    size = f" and move {units.text(moved, 'B')}" if moved else ""
    yield rule.finding(
        case,
        f"{number(case.per_step(rows.sum()))} copies{case.a_step} {what}",
        f"They take {units.text(time, 'ns')}{size} for no arithmetic. The largest: "
        + "; ".join(f"{name}, {units.text(case.per_step(ns), 'ns')}" for name, ns in largest)
        + ".",
        time,
        time,
        rows=rows,
    )


CONVERSIONS = Rule(
    name="dtype-conversions",
    summary="tensors are converted between dtypes inside the step",
    where=ON_BOTH,
    what="Each `.to(dtype)`, `.float()`, `.long()`, and what autocast inserts, reads and writes a whole tensor.",
    recognised="Copies for `aten::to` and `aten::_to_copy` whose tensors have different dtypes, outside the optimizer.",
    estimate="All of their time. Where a conversion must be, a fusing compiler still makes it part of its neighbour.",
    remedies=(
        "Create tensors in the dtype that is used; under autocast keep weights in the low precision (cache_enabled).",
        "torch.compile merges a conversion with the kernel before or after it.",
    ),
    example="`mask.float()` in every layer → made once, before the loop.",
    find=_conversions,
    rank=6,
)
LAYOUTS = Rule(
    name="layout-copies",
    summary="tensors are copied only to change their layout in memory",
    where=ON_BOTH,
    what="`.contiguous()`, a `reshape` of a transposed tensor, and changes between NCHW and NHWC move every byte twice "
    "and compute nothing.",
    recognised="Copies for `contiguous`, `clone`, `reshape` and `flatten`, outside the optimizer, and kernels that "
    "change between NCHW and NHWC by name.",
    estimate="All of their time: with one layout throughout, none of them is needed.",
    remedies=(
        "Keep one layout: channels_last for the model and its input, heads before time in attention, no transposed "
        "result that the next operator cannot read.",
    ),
    example="`x.transpose(1, 2).contiguous()` before each product: `torch.matmul` reads transposed tensors as they "
    "are.",
    find=_layouts,
    rank=6,
)
RULES = (COMPARE, SMALL, LAYOUTS, CONVERSIONS)
