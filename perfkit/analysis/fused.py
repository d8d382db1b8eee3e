"""Each kernel that a compiler fused: its time as the operators that it stands for predict it, beside the time it took.

    on a CPU   predicted = begin of a parallel region + max(bytes it moves / bandwidth, Σ arithmetic of its operators)
    on a GPU   predicted = start of a kernel + bytes it moves / bandwidth

Which operators a kernel stands for its backend says (`perfkit.analysis.places`); they are looked up in the profile of
eager, by pass, module and operator. Kernels that share an operator share its arithmetic in equal parts. Nothing is
fitted to a workload; what the formula holds is measured on this machine:

- Bandwidth is the measured one of the kernel's working set. What reads its data where other kernels left it is slower:
  - What the caches hold that each core has for itself was written by all threads, divided in another way: it is read at
    the measured rate of that, at best.
  - The first of its operators, in eager, read the same data and wrote as coldly. The fused kernel does not reach more
    bandwidth than it. An operator whose bytes take less than twice its call tells nothing.
- Arithmetic of single instructions (add, compare, select; sums and norms are made of these) runs at half the vector
  ceiling, which counts the two operations of a multiply-add. A copy or a fill has none.
- What evaluates a function for each element (exp, tanh, erf, log, division) or gathers takes the time that it took in
  eager less that of an operator that moves next to nothing, unless memory explains that time. What PyTorch runs on one
  thread because it is small, a compiler divides among all.
- The start of a kernel on a GPU is the median of the fusible kernels shorter than 5 µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from perfkit.analysis.logical import logical_name
from perfkit.analysis.places import places
from perfkit.analysis.results import FusedKernel
from perfkit.analysis.roofline import Booleans, Reals
from perfkit.analysis.rules import Case, tensors
from perfkit.table import FLOP_COLUMNS

NEAR = 0.25  # of the measured time: a prediction as near as that holds
_EXPLAINED = 1.3  # times the memory roof: an operator that takes no longer is bound by memory
_BY_MEMORY = 2.0  # times its call: an operator whose bytes take longer is bound by them, and not by its call
_MORE = 1.3  # times the work of eager's operators
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
_WHOLE = 1024.0  # elements: smaller work no compiler divides

ROOT = "(root)"
_COLUMNS = ("pass", "module", "operator")
Place = tuple[bool, str, str]  # whether in the backward pass, module, operator


@dataclass
class Spent:
    """What eager spent on one operator at one place, ns a step, and how many calls of fused kernels serve it a step.

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
class Machine:
    """What the formula needs of the machine: `start_ns` of a kernel on a GPU, of a parallel region on a CPU, and of
    an operator of eager that moves next to nothing; threads; what one of them reads that others wrote, in bytes/s (0:
    unknown), and the bytes of the caches that each core has for itself, over all threads."""

    start_ns: float
    empty_ns: float
    threads: int
    on_gpu: bool
    handover: float = 0.0
    private: float = 0.0


@dataclass
class _Sums:
    """The calls of one kernel, a step; `unknown` says why there is no prediction."""

    operators: dict[str, None] = field(default_factory=dict)
    count: float = 0.0
    eager: float = 0.0
    memory: float = 0.0
    arithmetic: float = 0.0
    start: float = 0.0
    predicted: float = 0.0
    measured: float = 0.0
    eager_flop: float = 0.0
    flop: float = 0.0
    unknown: str = ""


def check(eager: Case, fusible: Booleans, compiled: Case, generated: Booleans, machine: Machine) -> list[FusedKernel]:
    """The `generated` kernels of `compiled` with predictions from the `fusible` rows of `eager`, the longest first."""
    spent = eager_operators(eager, fusible, machine)
    lowered = _products(eager, ROOT) - _products(compiled) - set(spent)
    served: dict[int, list[Place]] = {row: [] for row in np.flatnonzero(generated).tolist()}
    for row, place in _lines(compiled, generated):
        served[row].append(place)
        if place in spent:
            spent[place].served_by += compiled.per_step(1)
    memory, names = _memory_ns(compiled), compiled.text("short_name")
    sums: dict[tuple[str, str], _Sums] = {}
    for row, places_ in served.items():
        one = sums.setdefault((names[row], compiled.text("pass")[row]), _Sums())
        if not lowered.isdisjoint(places_):
            one.unknown = "the compiler writes a product as a loop there"
        _add(one, compiled, row, float(memory[row]), {place: spent.get(place) for place in places_}, machine)
    made = [_kernel(name, pass_, one) for (name, pass_), one in sums.items()]
    return sorted(made, key=lambda kernel: -kernel.measured_ns)


def eager_operators(case: Case, fusible: Booleans, machine: Machine) -> dict[Place, Spent]:
    """What eager's fusible rows took, by place."""
    arithmetic, flop = _arithmetic_ns(case, machine), _flop(case)
    simple, memory, steps = _simple(case), _memory_ns(case), case.frame["step"].to_numpy(float, na_value=-1.0)
    reads = case.frame["bytes_read"].to_numpy(float) > NEXT_TO_NOTHING
    found: dict[Place, Spent] = {}
    begun: set[tuple[Place, float]] = set()
    for row, place in _lines(case, fusible, ROOT):
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


def _lines(case: Case, rows: Booleans, outside: str = "") -> Iterator[tuple[int, Place]]:
    """Each of `rows` with each place that it serves, as far as that is known; `outside` is where a row is that no
    module's range holds: in eager, in the model itself."""
    at = np.flatnonzero(rows)
    lines = places(case.frame.iloc[at])
    columns = [lines[name].astype(object).where(lines[name].notna(), "").tolist() for name in _COLUMNS]
    for row, pass_, module, operator in zip(lines["row"].tolist(), *columns, strict=True):
        if (module or outside) and operator:
            yield int(at[row]), (pass_ == "backward", module or outside, operator)


def _products(case: Case, outside: str = "") -> set[Place]:
    """Where the kernels of libraries multiply matrices."""
    return {place for _, place in _lines(case, case.is_in("family", ("matmul",)), outside)}


def _flop(case: Case) -> Reals:
    return np.nan_to_num(case.frame[list(FLOP_COLUMNS)].to_numpy(float)).sum(axis=1)


def _memory_ns(case: Case) -> Reals:
    """The time in which each row's bytes pass at the bandwidth of their working set; NaN where they are unknown."""
    assert case.ceilings is not None
    moved = case.judged.bytes
    sizes, rates = (np.array(values) for values in zip(*case.ceilings.envelope(), strict=True))
    level = np.clip(np.searchsorted(sizes, np.nan_to_num(moved), side="right") - 1, 0, None)
    return np.asarray(moved / rates[level] * 1e9, float)


def _arithmetic_ns(case: Case, machine: Machine) -> Reals:
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
    functions = ~_simple(case) & (own > _EXPLAINED * np.nan_to_num(_memory_ns(case)))
    for row in np.flatnonzero(functions).tolist():
        result[row] = max(result[row], _on_all_threads(case, row, machine))
    return result


def _simple(case: Case) -> Booleans:
    return case.named(lambda name: logical_name(name) in SIMPLE or name in _SIMPLE_BACKWARD)


def _on_all_threads(case: Case, row: int, machine: Machine) -> float:
    """What a row of eager takes beyond the call of its operator, when as many threads work on it as a compiler uses."""
    own = max(float(np.nan_to_num(case.judged.time[row])) - machine.empty_ns, 0.0)
    return own / _threads_gained(case.text("name")[row], case.text("shapes")[row], machine.threads)


def _threads_gained(name: str, shapes: str, threads: int) -> float:
    """How many times as many threads a compiler uses for an operator as PyTorch does."""
    size, operator = (
        max((tensors.elements(shape) for _, shape in tensors.shapes(shapes)), default=0),
        logical_name(name),
    )
    grain = 1 if operator == "gelu" and size > _GELU_FROM else _OWN_GRAIN.get(operator, _GRAIN)
    return threads / max(1, min(threads, -(-size // grain))) if size >= _WHOLE * threads else 1.0


def _add(
    one: _Sums, case: Case, row: int, memory: float, operators: dict[Place, Spent | None], machine: Machine
) -> None:
    """Add one call of a kernel, which serves `operators`."""
    known = {place: spent for place, spent in operators.items() if spent is not None}
    arithmetic = sum(spent.arithmetic_ns / spent.served_by for spent in known.values())
    parallel = machine.on_gpu or case.judged.bytes[row] / 4 >= _WHOLE * machine.threads
    if not machine.on_gpu and np.isfinite(memory):
        paced = _as_it_lies(float(case.judged.bytes[row]), known.values())
        memory = max(memory, paced, _handed_over(float(case.frame["bytes_read"].iloc[row]), machine) * parallel)
    start = machine.start_ns if parallel else 0.0
    if not operators:
        one.unknown = "the backend does not say which operators it stands for"
    elif not np.isfinite(memory):
        one.unknown = "what it moves is not known"
    elif lacking := [o for place, spent in operators.items() if spent is None and (o := place[2]) not in SIMPLE]:
        one.unknown = f"eager has no {lacking[0]} there"
    one.operators.update(dict.fromkeys(place[2] for place in operators))
    one.count += case.per_step(1)
    one.measured += case.per_step(float(np.nan_to_num(case.judged.time[row])))
    one.eager += case.per_step(sum(spent.time_ns / spent.served_by for spent in known.values()))
    one.eager_flop += case.per_step(sum(spent.flop / spent.served_by for spent in known.values()))
    one.flop += case.per_step(float(np.nan_to_num(case.judged.flop[row])))
    one.memory += case.per_step(memory)
    one.arithmetic += case.per_step(arithmetic)
    one.start += case.per_step(start)
    together = memory + arithmetic if machine.on_gpu else max(memory, arithmetic)
    one.predicted += case.per_step(start + together)


def _as_it_lies(moved: float, operators: Iterable[Spent]) -> float:
    """What `moved` bytes take at the pace of the first of `operators`; 0 where that is not bound by memory."""
    first = min((spent for spent in operators if spent.first >= 0), key=lambda spent: spent.first, default=None)
    return moved * first.reader_ns / first.reader_bytes if first and first.reader_bytes else 0.0


def _handed_over(read: float, machine: Machine) -> float:
    """What it takes to read so many bytes that all threads wrote; 0 where no core's own caches hold them."""
    return read / machine.handover * 1e9 if machine.handover and read <= machine.private else 0.0


def _kernel(name: str, pass_: str, one: _Sums) -> FusedKernel:
    parts = {"memory": one.memory, "arithmetic": one.arithmetic, "start": one.start}
    return FusedKernel(
        name=name,
        pass_=pass_,
        operators=list(one.operators),
        count=one.count,
        eager_ns=one.eager,
        predicted_ns=None if one.unknown else one.predicted,
        measured_ns=one.measured,
        bound="" if one.unknown else max(parts, key=lambda part: parts[part]),
        why=one.unknown or _why(one),
    )


def _why(one: _Sums) -> str:
    """Why the kernel takes another time than predicted, as far as the figures tell; "" where it does not."""
    if abs(one.predicted - one.measured) <= NEAR * one.measured:
        return ""
    faster = one.measured < one.predicted
    if not faster and one.flop > _MORE * one.eager_flop > 0:
        return f"by the cost model its loops hold {one.flop / one.eager_flop:.1f} × the FLOP of eager's operators"
    if one.start > max(one.memory, one.arithmetic):
        return f"it is short: beginning work on all threads takes {'less' if faster else 'longer'} than measured alone"
    if one.arithmetic > one.memory:
        code = "better" if faster else "worse"
        return f"its code computes {code} than eager's operators do"
    return "its data lies nearer than predicted" if faster else "it does not reach the measured bandwidth"


def error(kernels: list[FusedKernel]) -> tuple[float, float] | None:
    """Σ |predicted − measured| / Σ measured over the kernels with a prediction, and their share of all fused time."""
    known = [k for k in kernels if k.predicted_ns is not None]
    measured, all_ = sum(k.measured_ns for k in known), sum(k.measured_ns for k in kernels)
    if not measured:
        return None
    return sum(abs((k.predicted_ns or 0.0) - k.measured_ns) for k in known) / measured, measured / all_
