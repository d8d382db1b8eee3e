"""Chains of elementwise kernels that one fused kernel would do: what their intermediates cost, and their launches."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline import Booleans, Reals
from perfkit.analysis.rules import tensors
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.words import percent

POINTWISE = ("elementwise", "activation", "dropout")
GENERATED = re.compile(r"^(graph_\d+_)?(triton_|cpp_fused)")  # by Inductor
_LONGEST_GAP = 50e3  # ns between two kernels of a chain: more is not a launch
_NAMED = 3
_SHOWN = 6  # operators of a chain


@dataclass(frozen=True)
class Chain:
    """Places of rows that follow each other, each reading what the one before wrote; what fusing them saves in ns."""

    rows: tuple[int, ...]
    moved_ns: float  # of the intermediates that are neither written nor read any more
    launch_ns: float  # between the kernels
    saved_bytes: float


def elementwise(case: Case) -> Booleans:
    """The rows of elementwise kernels outside the optimizer that no other finding is about."""
    return case.unclaimed(case.is_in("family", POINTWISE) & ~case.is_in("pass", ("optimizer",)))


def chains(case: Case, work: Booleans) -> list[Chain]:
    """All chains of at least two of the rows `work`, in the order of the table."""
    frame, shapes = case.frame, case.text("shapes")
    where = list(zip(frame["step"].tolist(), frame["stream"].tolist(), case.text("pass"), strict=True))
    compiled = [bool(GENERATED.search(name)) or "fused" in name.lower() for name in frame["name"].tolist()]
    found: list[list[int]] = []
    current: list[int] = []
    for i in np.argsort(frame["order"].to_numpy(np.int64), kind="stable").tolist():
        usable = bool(work[i]) and not compiled[i]
        linked = usable and current and where[i] == where[current[-1]] and _reads(shapes[current[-1]], shapes[i])
        if not linked:
            found.append(current)
            current = []
        if usable:
            current.append(i)
    found.append(current)
    start, time = frame["start_ns"].to_numpy(float), np.nan_to_num(case.judged.time)
    written = np.nan_to_num(frame["bytes_written"].to_numpy(float))
    rate = _rates(case)
    return [_chain(rows, start, time, written, rate) for rows in found if len(rows) > 1]


def _reads(before: str, after: str) -> bool:
    """Whether a row with shapes `after` can read the result of one with shapes `before`."""
    result = tensors.broadcast(before)
    return result is not None and any(shape == result for _, shape in tensors.shapes(after))


def _rates(case: Case) -> Reals:
    """Bytes a ns of each row: at its memory ceiling where it has one, else as it ran. Never too slow."""
    judged = case.judged
    by_memory = judged.judged & (judged.bound == 0) & (judged.roof > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_memory, judged.bytes / judged.roof, judged.bytes / judged.time)


def _chain(rows: list[int], start: Reals, time: Reals, written: Reals, rate: Reals) -> Chain:
    moved = launch = saved = 0.0
    for first, second in itertools.pairwise(rows):
        gap = start[second] - start[first] - time[first]
        launch += float(np.clip(gap, 0.0, _LONGEST_GAP)) if np.isfinite(gap) else 0.0
        if written[first] > 0:
            saved += 2 * written[first]
            moved += sum(min(written[first] / rate[r], time[r]) for r in (first, second) if rate[r] > 0)
    return Chain(tuple(rows), float(moved), launch, float(saved))


def _find(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    if not case.is_in("family", POINTWISE).any():
        return
    if not any(case.text("shapes")):
        yield rule.cannot("the profile has no shapes; torch.profiler records them with record_shapes=True")
        return
    found = chains(case, elementwise(case))
    if not found:
        return
    rows = np.zeros(len(case.frame), bool)
    rows[[i for chain in found for i in chain.rows]] = True
    time, kernels, left = case.time(rows), case.per_step(rows.sum()), case.per_step(len(found))
    moved = case.per_step(sum(c.moved_ns for c in found))
    launches = case.unprofiled(case.per_step(sum(c.launch_ns for c in found)))
    bytes_ = units.text(case.per_step(sum(c.saved_bytes for c in found)), "B")
    yield rule.finding(
        case,
        f"{kernels:,.4g} elementwise kernels a step in {left:,.4g} chains could be {left:,.4g}",
        f"They take {units.text(time, 'ns')}, {percent(case.share(time))} of the step. Fused, {bytes_} of "
        f"intermediates stay in registers, {units.text(moved, 'ns')}, and {kernels - left:,.4g} launches go, "
        f"{units.text(launches, 'ns')}. Most of it: {'; '.join(_largest(case, found))}.",
        time,
        moved + launches,
        rows=rows,
    )


def _largest(case: Case, found: list[Chain]) -> list[str]:
    """The kinds of chains that fusing saves most on, with how often they occur a step."""
    operators, passes = case.operators(), case.text("pass")
    totals: dict[str, list[float]] = {}
    for chain in found:
        names = [operators[i].removeprefix("aten::") for i in chain.rows[:_SHOWN]]
        more = " → …" if len(chain.rows) > _SHOWN else ""
        total = totals.setdefault(f"{passes[chain.rows[0]]} {' → '.join(names)}{more}".strip(), [0, 0.0])
        total[0] += 1
        total[1] += chain.moved_ns + case.unprofiled(chain.launch_ns)
    order = sorted(totals.items(), key=lambda item: -item[1][1])
    return [f"{case.per_step(count):,.3g} × {name}" for name, (count, _) in order[:_NAMED]]


CHAINS = Rule(
    name="elementwise-chain",
    summary="chains of elementwise kernels that one fused kernel would do",
    where=ON_BOTH,
    what="Each elementwise operator reads its operands from memory and writes its result there, only for the next one "
    "to read it again. A fused kernel keeps intermediates in registers: of a chain of five passes over a tensor one "
    "is left.",
    recognised="Rows of elementwise kernels that follow each other on one stream, in one pass, each with an operand "
    "of the shape that the one before wrote. Kernels of a compiler are left out, and so is the optimizer. Whether the "
    "operand is that very tensor no profile tells.",
    estimate="The bytes of each intermediate, once written and once read, at the measured bandwidth (without "
    "ceilings, at the rate that the kernels themselves reached), and the time between the kernels, scaled to the step "
    "without the profiler. Where another operator or the backward pass needs an intermediate too, its write stays: it "
    "is a bound.",
    remedies=(
        "Compile the model (torch.compile), or write the chain as one kernel (Triton).",
        "By hand: operators that join two (addcmul, fused activations), in-place variants where no gradient needs the "
        "input.",
    ),
    example="`F.gelu(x + bias) * scale`: three kernels and two intermediates; as one kernel, a third of the bytes.",
    find=_find,
)
RULES = (CHAINS,)
