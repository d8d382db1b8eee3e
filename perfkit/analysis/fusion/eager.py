"""Time of eager at each place of the model, and on a CPU the arithmetic that stays when operators are fused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfkit.analysis import tensors
from perfkit.analysis.roofline.roof import Booleans, Reals
from perfkit.analysis.rules import Case
from perfkit.profile_names import ROOT
from perfkit.table import FLOP_COLUMNS
from perfkit.tree.names import logical_name
from perfkit.tree.places import places

_EXPLAINED = 1.3  # times the memory roof: an operator that takes no longer is bound by memory
_BY_MEMORY = 2.0  # times its call: an operator whose bytes take longer is bound by them, and not by its call
# Operators of single instructions, at most a root or a division a row: how long they took in eager says nothing of
# their arithmetic.
SIMPLE = frozenset({
    "add", "sub", "rsub", "mul", "neg", "abs", "relu", "clamp", "clamp_min", "clamp_max", "threshold", "maximum",
    "minimum", "square", "addcmul", "where", "masked_fill", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_not",
    "bitwise_and", "bitwise_or", "logical_not", "logical_and", "logical_or", "to", "copy", "clone", "contiguous",
    "reshape", "fill", "zero", "zeros", "zeros_like", "ones", "ones_like", "full", "arange", "cat", "stack", "tril",
    "triu", "expand", "detach", "linear", "matmul", "invert", "view", "split",
    "sum", "mean", "var", "var_mean", "amax", "amin", "max", "min", "argmax", "mse_loss", "layer_norm", "group_norm",
    "batch_norm", "rms_norm",
})  # fmt: skip
_SIMPLE_BACKWARD = ("aten::sigmoid_backward", "aten::tanh_backward")  # products of what the forward pass kept
# Elements that PyTorch gives one thread at least (at::internal::GRAIN_SIZE), and those of operators of their own.
_GRAIN, _OWN_GRAIN = 32_768, {"layer_norm": 1, "softmax": 2048, "embedding": 1024}
_GELU_FROM = 16_384  # above that many elements, gelu is divided among all threads
NEXT_TO_NOTHING = 1024.0  # bytes
WHOLE = 1024.0  # elements: smaller work no compiler divides

_COLUMNS = ("pass", "module", "operator")
Place = tuple[bool, str, str]  # whether in the backward pass, module, operator


@dataclass
class Spent:
    """Time of eager in one operator at one place, ns a step, and the calls of fused kernels that serve it a step.

    `first` is the row that is the first to read something there; of that one in each step, `reader_ns` is what it takes
    on all threads and `reader_bytes` what it moves, 0 where it is not bound by memory.
    """

    time_ns: float = 0.0
    arithmetic_ns: float = 0.0
    flop: float = 0.0
    served_by: float = 0.0
    first: int = -1
    reader_ns: float = 0.0
    reader_bytes: float = 0.0


@dataclass(frozen=True)
class EagerMachine:
    """The machine in the formula: `start_ns` of a kernel on a GPU, of a parallel region on a CPU, and of
    an operator of eager that moves next to nothing; threads; what one of them reads that others wrote, in bytes/s (0:
    unknown), and the bytes of the caches that each core has for itself, over all threads."""

    start_ns: float
    empty_ns: float
    threads: int
    on_gpu: bool
    handover: float = 0.0
    private: float = 0.0


def eager_operators(case: Case, fusible: Booleans, machine: EagerMachine) -> dict[Place, Spent]:
    """Return the time of eager's fusible rows, by place."""
    arithmetic, flop = _arithmetic_ns(case, machine), _flop(case)
    simple, memory, steps = _simple(case), memory_ns(case), case.frame["step"].to_numpy(float, na_value=-1.0)
    reads = case.frame["bytes_read"].to_numpy(float) > NEXT_TO_NOTHING
    found: dict[Place, Spent] = {}
    begun: set[tuple[Place, float]] = set()
    for row, place, _ in lines(case, fusible, ROOT):
        one = found.setdefault(place, Spent())
        if reads[row] and (place, steps[row]) not in begun:
            begun.add((place, steps[row]))
            one.first = row if one.first < 0 else one.first
            if simple[row] and memory[row] > _BY_MEMORY * machine.empty_ns:
                one.reader_ns += case.per_step(_on_all_threads(case, row, machine))
                one.reader_bytes += case.per_step(float(case.judged.bytes[row]))
        one.time_ns += case.per_step(float(np.nan_to_num(case.judged.time[row])))
        one.arithmetic_ns += case.per_step(float(arithmetic[row]))
        one.flop += case.per_step(float(flop[row]))
    return found


def lines(case: Case, rows: Booleans, outside: str = "") -> Iterator[tuple[int, Place, float]]:
    """Each of `rows` with each place that it serves, as far as that is known, and that one's share of it; `outside` is
    where a row is that no module's range holds: in eager, in the model itself."""
    at = np.flatnonzero(rows)
    found = places(case.frame.iloc[at])
    columns = [found[name].astype(object).where(found[name].notna(), "").tolist() for name in _COLUMNS]
    for row, share, pass_, module, operator in zip(
        found["row"].tolist(), found["share"].tolist(), *columns, strict=True
    ):
        if (module or outside) and operator:
            yield int(at[row]), (pass_ == "backward", module or outside, operator), float(share)


def _flop(case: Case) -> Reals:
    return np.nan_to_num(case.frame[list(FLOP_COLUMNS)].to_numpy(float)).sum(axis=1)


def memory_ns(case: Case) -> Reals:
    """The time in which each row's bytes pass at the bandwidth of their working set; NaN where they are unknown."""
    assert case.ceilings is not None
    moved = case.judged.bytes
    sizes, rates = (np.array(values) for values in zip(*case.ceilings.envelope(), strict=True))
    level = np.clip(np.searchsorted(sizes, np.nan_to_num(moved), side="right") - 1, 0, None)
    return np.asarray(moved / rates[level] * 1e9, float)


def _arithmetic_ns(case: Case, machine: EagerMachine) -> Reals:
    """The time that the arithmetic of each row of eager takes inside a fused kernel; 0 on a GPU."""
    assert case.ceilings is not None
    result = np.zeros(len(case.frame))
    if machine.on_gpu:
        return result
    for column in FLOP_COLUMNS:
        rate = case.ceilings.compute.get(column.removeprefix("flop_"))
        if rate and "vector" in column:
            result += np.nan_to_num(case.frame[column].to_numpy(float)) * 2 / rate * 1e9
    own = np.nan_to_num(case.judged.time) - machine.empty_ns
    functions = ~_simple(case) & (own > _EXPLAINED * np.nan_to_num(memory_ns(case)))
    for row in np.flatnonzero(functions).tolist():
        result[row] = max(result[row], _on_all_threads(case, row, machine))
    return result


def _simple(case: Case) -> Booleans:
    return case.named(lambda name: logical_name(name) in SIMPLE or name in _SIMPLE_BACKWARD)


def _on_all_threads(case: Case, row: int, machine: EagerMachine) -> float:
    """Return a row's time beyond the call of its operator, with as many threads as a compiler uses."""
    own = max(float(np.nan_to_num(case.judged.time[row])) - machine.empty_ns, 0.0)
    return own / _threads_gained(case.text("name")[row], case.text("shapes")[row], machine.threads)


def _threads_gained(name: str, shapes: str, threads: int) -> float:
    """Return the threads of a compiler for an operator over those of PyTorch."""
    size, operator = (
        max((tensors.elements(shape) for _, shape in tensors.shapes(shapes)), default=0),
        logical_name(name),
    )
    grain = 1 if operator == "gelu" and size > _GELU_FROM else _OWN_GRAIN.get(operator, _GRAIN)
    return threads / max(1, min(threads, -(-size // grain))) if size >= WHOLE * threads else 1.0
