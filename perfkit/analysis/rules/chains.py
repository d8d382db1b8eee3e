"""Chains of elementwise kernels that one fused kernel would do: what their intermediates cost, and their launches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfkit import units
from perfkit.analysis import tensors
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline.roof import BOUNDS, L2, MEMORY, Booleans, Integers, Reals
from perfkit.analysis.rules.base import ON_BOTH, Case, Rule
from perfkit.analysis.words import number

POINTWISE = ("elementwise", "activation", "dropout")
GENERATED = re.compile(r"^(graph_\d+_)?(triton_|cpp_fused)")  # by Inductor
_BY_MEMORY = [BOUNDS.index(MEMORY), BOUNDS.index(L2)]
_LONGEST_GAP = 50e3  # ns between two kernels of a chain: more is not a launch
_NAMED = 3
_SHOWN = 6  # operators of a chain


@dataclass(frozen=True)
class Chain:
    """Places of rows that follow each other, each reading what the one before wrote; what fusing them saves in ns."""

    rows: tuple[int, ...]
    moved_ns: float  # of the intermediates that are neither written nor read any more
    launch_ns: float  # between the kernels
    saved_read: float  # bytes
    saved_written: float

    @property
    def saved_bytes(self) -> float:
        """The bytes that are neither read nor written any more."""
        return self.saved_read + self.saved_written


def elementwise(case: Case) -> Booleans:
    """The rows of elementwise kernels outside the optimizer that no other finding is about."""
    return case.unclaimed(case.is_in("family", POINTWISE) & ~case.is_in("pass", ("optimizer",)))


def on_complex(case: Case) -> Booleans:
    """The rows that work on complex numbers, for which torch.compile generates no code."""
    return case.passing("shapes", lambda shapes: "complex" in shapes)


def chains(case: Case, work: Booleans) -> list[Chain]:
    """All chains of at least two of the rows `work`, in the order of the table."""
    usable = (
        work & ~on_complex(case) & ~case.named(lambda name: bool(GENERATED.search(name)) or "fused" in name.lower())
    )
    order = np.argsort(case.frame["order"].to_numpy(np.int64), kind="stable")
    place = np.flatnonzero(usable[order])
    rows = order[place]
    if len(rows) < 2:
        return []
    first, second = rows[:-1], rows[1:]
    linked = (np.diff(place) == 1) & _together(case, first, second) & _reads(case, first, second)
    group = np.concatenate([[0], np.cumsum(~linked)])
    sums = [np.bincount(group[:-1], np.where(linked, a, 0.0), group[-1] + 1) for a in _spared(case, first, second)]
    size = np.bincount(group)
    long = np.flatnonzero(size > 1)
    begin, spared, numbers = np.cumsum(size) - size, np.stack(sums, axis=1), rows.tolist()
    return [
        Chain(tuple(numbers[b : b + n]), *parts)
        for b, n, parts in zip(begin[long].tolist(), size[long].tolist(), spared[long].tolist(), strict=True)
    ]


def _together(case: Case, first: Integers, second: Integers) -> Booleans:
    """Return whether two rows are of one step, stream and pass."""
    same = np.ones(len(first), bool)
    for column in ("step", "stream", "pass"):
        code, _ = case.codes(column)
        same &= code[first] == code[second]
    return same


def _reads(case: Case, first: Integers, second: Integers) -> Booleans:
    """Return whether the second of two rows can read the result of the first, by their shapes."""
    code, texts = case.codes("shapes")
    texts = [*texts, ""]  # of −1, which has none
    code = np.where(code < 0, len(texts) - 1, code)
    pairs, inverse = np.unique(code[first] * len(texts) + code[second], return_inverse=True)
    known = [_fits(texts[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.tolist()]
    return np.array(known, bool)[inverse]


def _fits(before: str, after: str) -> bool:
    """Return whether a row with shapes `after` has an operand of as many elements as one with shapes `before` writes: a
    view may be between them."""
    result = tensors.broadcast(before)
    if result is None:
        return False
    return any(tensors.elements(shape) == tensors.elements(result) for _, shape in tensors.shapes(after))


def _parts(case: Case, first: Integers, second: Integers) -> Booleans:
    """Return whether two rows are parts of one copy or fill: PyTorch divides those of more than 2³¹ bytes on a GPU."""
    same = case.is_in("family", ("copy", "fill"))[first] & (case.report.device == "cuda")
    for column in ("short_name", "operator", "module", "shapes"):
        code, _ = case.codes(column)
        same &= code[first] == code[second]
    return same


def _spared(case: Case, first: Integers, second: Integers) -> tuple[Reals, Reals, Reals, Reals]:
    """Return what joining two rows spares: ns of moving the intermediate, ns between them, and its bytes.

    The second reads no more of it than it reads at all; if that is nothing, it is not one of its inputs. A fill that it
    does not read as a whole is what it writes into: that stays.
    """
    start, time = case.frame["start_ns"].to_numpy(float), np.nan_to_num(case.judged.time)
    read, written = (np.nan_to_num(case.frame[name].to_numpy(float)) for name in ("bytes_read", "bytes_written"))
    parts = _parts(case, first, second)
    written = np.where(parts, 0.0, _with_parts(written[first], parts))
    again = np.minimum(read[second], written)
    stays = case.is_in("family", ("fill",))[first] & (again < written)
    again, written = np.where(stays, 0.0, again), np.where(stays | (again <= 0), 0.0, written)
    rate = _rates(case)
    moved = np.zeros(len(first))
    with np.errstate(divide="ignore", invalid="ignore"):
        for rows in (first, second):
            moved += np.where((written > 0) & (rate[rows] > 0), np.minimum(written / rate[rows], time[rows]), 0.0)
    gap = start[second] - start[first] - time[first]
    return moved, np.clip(np.nan_to_num(gap), 0.0, _LONGEST_GAP), again, written


def _with_parts(written: Reals, parts: Booleans) -> Reals:
    """Return what each row wrote, together with the parts of the same result right before it."""
    begin = np.concatenate([[0], np.cumsum(~parts)[:-1]])  # a row after a part goes on with it
    total = np.cumsum(written)
    before = np.concatenate([[0.0], total])[np.searchsorted(begin, begin)]
    return total - before


def _rates(case: Case) -> Reals:
    """Bytes a ns of each row: at its memory ceiling where it has one, else as it ran. Never too slow."""
    judged = case.judged
    by_memory = judged.judged & np.isin(judged.bound, _BY_MEMORY) & (judged.roof > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_memory, judged.bytes / judged.roof, judged.bytes / judged.time)


def _find(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    if not case.is_in("family", POINTWISE).any():
        return
    if not any(case.text("shapes")):
        how = "" if case.by_xla else "; torch.profiler records them with record_shapes=True"
        yield rule.cannot(f"the profile has no shapes{how}")
        return
    found = chains(case, elementwise(case))
    if not found:
        return
    rows = np.zeros(len(case.frame), bool)
    rows[[i for chain in found for i in chain.rows]] = True
    time, kernels, left = case.time(rows), case.per_step(rows.sum()), case.per_step(len(found))
    moved = case.per_step(sum(c.moved_ns for c in found))
    launches = case.between(case.per_step(sum(c.launch_ns for c in found)))
    bytes_ = units.text(case.per_step(sum(c.saved_bytes for c in found)), "B")
    yield rule.finding(
        case,
        f"{number(kernels)} elementwise kernels{case.a_step} in {number(left)} chains could be {number(left)}",
        f"They take {units.text(time, 'ns')}, {case.of_whole(time)}. Fused, {bytes_} of "
        f"intermediates stay in registers, {units.text(moved, 'ns')}, and {number(kernels - left)} launches go, "
        f"{units.text(launches, 'ns')}. Most of it: {'; '.join(_largest(case, found))}.",
        time,
        moved + launches,
        rows=rows,
    )


def called(case: Case, chain: Chain) -> str:
    """A chain by its pass and operators: `forward add → gelu → mul`."""
    operators = case.operators()
    names = [operators[i].removeprefix("aten::") for i in chain.rows[:_SHOWN]]
    more = " → …" if len(chain.rows) > _SHOWN else ""
    return f"{case.text('pass')[chain.rows[0]]} {' → '.join(names)}{more}".strip()


def _largest(case: Case, found: list[Chain]) -> list[str]:
    """The kinds of chains that fusing saves most on, with how often they occur a step."""
    totals: dict[str, list[float]] = {}
    for chain in found:
        total = totals.setdefault(called(case, chain), [0, 0.0])
        total[0] += 1
        total[1] += chain.moved_ns + case.between(chain.launch_ns)
    order = sorted(totals.items(), key=lambda item: -item[1][1])
    return [f"{number(case.per_step(count))} × {name}" for name, (count, _) in order[:_NAMED]]


CHAINS = Rule(
    name="elementwise-chain",
    summary="chains of elementwise kernels that one fused kernel would do",
    where=ON_BOTH,
    what="Each elementwise operator reads its operands from memory and writes its result there, only for the next one "
    "to read it again. A fused kernel keeps intermediates in registers: of a chain of five passes over a tensor one "
    "is left.",
    recognised="Rows of elementwise kernels that follow each other on one stream, in one pass, each with an operand "
    "of the shape that the one before wrote. Kernels of a compiler are left out, and so is the optimizer. Whether the "
    "operand is that very tensor is in no profile.",
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
    rank=7,
)
RULES = (CHAINS,)
