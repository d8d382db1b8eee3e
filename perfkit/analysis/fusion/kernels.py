"""Each kernel that a compiler fused: its time as its operators predict it, and the time that it took.

    on a CPU   predicted = begin of a parallel region + max(bytes it moves / bandwidth, Σ arithmetic of its operators)
    on a GPU   predicted = start of a kernel + Σ over its loops of max(bytes / bandwidth, instructions / their rate)

A kernel's backend says which operators it replaces (`perfkit.tree.places`); they are looked up in the profile of
eager, by pass, module and operator. What they took there one by one is divided among the kernels that serve the same
operators, by the bytes that each moves for them; a kernel that serves what eager has not is not compared. Nothing is
fitted to a workload; what the formula holds is measured on this machine.

On a GPU `perfkit.analysis.fusion.gpu` has bytes and instructions; the start is the median of the fusible kernels
shorter than 5 µs. On a CPU:

- Bandwidth is the measured one of the kernel's working set. What reads its data where other kernels left it is slower:
  - What the caches hold that each core has for itself was written by all threads, divided in another way: it is read at
    the measured rate of that, at best.
  - The first of its operators, in eager, read the same data and wrote as coldly. The fused kernel does not reach more
    bandwidth than it. An operator whose bytes take less than twice its call says nothing.
- Arithmetic of single instructions (add, compare, select; sums and norms are made of these) runs at half the vector
  ceiling, which counts the two operations of a multiply-add. A copy or a fill has none.
- What evaluates a function for each element (exp, tanh, erf, log, division) or gathers takes the time that it took in
  eager less that of an operator that moves next to nothing, unless memory explains that time. What PyTorch runs on one
  thread because it is small, a compiler divides among all. Kernels that share an operator share it in equal parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from perfkit.analysis.fusion import gpu
from perfkit.analysis.fusion.eager import (
    SIMPLE,
    WHOLE,
    EagerMachine,
    Place,
    Spent,
    eager_operators,
    lines,
    memory_ns,
)
from perfkit.analysis.fusion_results import FusedKernel
from perfkit.analysis.roofline.roof import Booleans
from perfkit.analysis.rules import Case
from perfkit.profile_names import ROOT

NEAR = 0.25  # of the measured time: a prediction as near as that holds
_MORE = 1.3  # times the work of eager's operators


@dataclass
class _Sums:
    """The calls of one kernel, a step; `unknown` says why a prediction is missing, `apart` why eager's time is not of
    the same work."""

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
    apart: str = ""


@dataclass(frozen=True)
class _FusedCall:
    """One call of a fused kernel, ns: what its bytes, its arithmetic and both together take, and its operators; those
    that eager has not have no `Spent`. `eager` is its part of what they took one by one."""

    memory: float
    arithmetic: float
    together: float
    start: float
    operators: Mapping[Place, Spent | None]
    eager: float

    @property
    def known(self) -> list[Spent]:
        """The time of those operators that eager has."""
        return [spent for spent in self.operators.values() if spent is not None]

    @property
    def lacking(self) -> list[str]:
        """The operators that eager has not at their place."""
        return [place[2] for place, spent in self.operators.items() if spent is None]


def check(
    eager: Case, fusible: Booleans, compiled: Case, generated: Booleans, left: Booleans, machine: EagerMachine
) -> list[FusedKernel]:
    """The `generated` kernels of `compiled` with predictions, the longest first.

    `fusible` are eager's rows, `left` those of the same kind that the compiler left as they are.
    """
    spent = eager_operators(eager, fusible, machine)
    lowered = _products(eager, ROOT) - _products(compiled) - set(spent)
    served: dict[int, dict[Place, float]] = {row: {} for row in np.flatnonzero(generated).tolist()}
    for row, place, share in lines(compiled, generated):
        served[row][place] = share
        if place in spent:
            spent[place].served_by += compiled.per_step(1)
    one_by_one = _one_by_one(compiled, spent, served, left)
    unplaced = _unplaced(compiled, served)
    calls = (
        _on_gpu(compiled, served, spent, one_by_one, machine)
        if machine.on_gpu
        else (_on_cpu(compiled, served, spent, one_by_one, machine))
    )
    names, sums = compiled.text("short_name"), dict[tuple[str, str], _Sums]()
    for row, call in calls.items():
        kernel_sums = sums.setdefault((names[row], compiled.text("pass")[row]), _Sums())
        if not lowered.isdisjoint(call.operators):
            kernel_sums.unknown = kernel_sums.apart = "the compiler writes a product as a loop there"
        if hidden := [op for back, _, op in call.operators if any(f"_{op}_" in name for name in unplaced[back])]:
            kernel_sums.apart = f"another kernel computes {hidden[0]}, and the backend does not say where"
        _add(kernel_sums, compiled, row, call, machine)
    made = [_kernel(name, pass_, kernel_sums, machine) for (name, pass_), kernel_sums in sums.items()]
    return sorted(made, key=lambda kernel: -kernel.measured_ns)


def _unplaced(compiled: Case, served: Mapping[int, Mapping[Place, float]]) -> tuple[set[str], set[str]]:
    """Names of the kernels before the backward pass, and in it, of which nobody says what they serve. Inductor names a
    kernel by its operators."""
    names, passes = compiled.text("short_name"), compiled.text("pass")
    rows = [row for row, places in served.items() if not places]
    backward = {names[row] for row in rows if passes[row] == "backward"}
    return {names[row] for row in rows if passes[row] != "backward"}, backward


def _products(case: Case, outside: str = "") -> set[Place]:
    """Places where the kernels of libraries multiply matrices."""
    return {place for _, place, _ in lines(case, case.is_in("family", ("matmul",)), outside)}


def _one_by_one(
    compiled: Case, spent: Mapping[Place, Spent], served: Mapping[int, Mapping[Place, float]], left: Booleans
) -> dict[int, float]:
    """For each fused call its part of what eager took at the places that it serves, ns: by the bytes that it moves for
    each, of those that all calls move for it, fused or not."""
    moved = np.maximum(np.nan_to_num(compiled.judged.bytes), 1.0)
    whole: dict[Place, float] = {}
    others = ((row, place, share) for row, place, share in lines(compiled, left))
    ours = ((row, place, share) for row, places in served.items() for place, share in places.items())
    for row, place, share in (*ours, *others):
        whole[place] = whole.get(place, 0.0) + compiled.per_step(share * moved[row])
    return {
        row: sum(spent[p].time_ns * share * moved[row] / whole[p] for p, share in places.items() if p in spent)
        for row, places in served.items()
    }


def _on_gpu(
    compiled: Case,
    served: Mapping[int, Mapping[Place, float]],
    spent: Mapping[Place, Spent],
    one_by_one: Mapping[int, float],
    machine: EagerMachine,
) -> dict[int, _FusedCall]:
    took = gpu.times(compiled, list(served))
    return {
        row: _FusedCall(*took[row], machine.start_ns, {place: spent.get(place) for place in places}, one_by_one[row])
        for row, places in served.items()
    }


def _on_cpu(
    compiled: Case,
    served: Mapping[int, Mapping[Place, float]],
    spent: Mapping[Place, Spent],
    one_by_one: Mapping[int, float],
    machine: EagerMachine,
) -> dict[int, _FusedCall]:
    passing, read = memory_ns(compiled), compiled.frame["bytes_read"].to_numpy(float)
    calls = {}
    for row, places in served.items():
        operators = {place: spent.get(place) for place in places}
        known = [operator for operator in operators.values() if operator is not None]
        moved, memory = float(compiled.judged.bytes[row]), float(passing[row])
        parallel = moved / 4 >= WHOLE * machine.threads
        if np.isfinite(memory):
            memory = max(memory, _as_it_lies(moved, known), _handed_over(float(read[row]), machine) * parallel)
        arithmetic = sum(one.arithmetic_ns / one.served_by for one in known)
        start = machine.start_ns if parallel else 0.0
        calls[row] = _FusedCall(memory, arithmetic, max(memory, arithmetic), start, operators, one_by_one[row])
    return calls


def _add(one: _Sums, case: Case, row: int, call: _FusedCall, machine: EagerMachine) -> None:
    """Add one call of a kernel."""
    lacking = call.lacking
    unknown = [] if machine.on_gpu else [operator for operator in lacking if operator not in SIMPLE]
    if not call.operators:
        one.apart = "the backend does not say which operators it replaces"
        one.unknown = one.unknown if machine.on_gpu else one.apart
    elif lacking:
        one.apart = f"eager has no {lacking[0]} there"
    if call.operators and unknown:
        one.unknown = f"eager has no {unknown[0]} there"
    if not np.isfinite(call.memory):
        one.unknown = one.unknown or "what it moves is not known"
    one.operators.update(dict.fromkeys(place[2] for place in call.operators))
    one.count += case.per_step(1)
    one.measured += case.per_step(float(np.nan_to_num(case.judged.time[row])))
    one.eager += case.per_step(call.eager)
    one.eager_flop += case.per_step(sum(spent.flop / spent.served_by for spent in call.known))
    one.flop += case.per_step(float(np.nan_to_num(case.judged.flop[row])))
    one.memory += case.per_step(call.memory)
    one.arithmetic += case.per_step(call.arithmetic)
    one.start += case.per_step(call.start)
    one.predicted += case.per_step(call.start + call.together)


def _as_it_lies(moved: float, operators: Iterable[Spent]) -> float:
    """Return the time of `moved` bytes at the rate of the first of `operators`; 0 if memory does not bound it."""
    first = min((spent for spent in operators if spent.first >= 0), key=lambda spent: spent.first, default=None)
    return moved * first.reader_ns / first.reader_bytes if first and first.reader_bytes else 0.0


def _handed_over(read: float, machine: EagerMachine) -> float:
    """Return the time to read bytes that all threads wrote; 0 if no core's own caches hold them."""
    return read / machine.handover * 1e9 if machine.handover and read <= machine.private else 0.0


def _kernel(name: str, pass_: str, one: _Sums, machine: EagerMachine) -> FusedKernel:
    parts = {"memory": one.memory, "arithmetic": one.arithmetic, "start": one.start}
    return FusedKernel(
        name=name,
        pass_=pass_,
        operators=list(one.operators),
        count=one.count,
        eager_ns=None if one.apart else one.eager,
        apart=one.apart,
        predicted_ns=None if one.unknown else one.predicted,
        measured_ns=one.measured,
        bound="" if one.unknown else max(parts, key=lambda part: parts[part]),
        why=one.unknown or _why(one, machine),
    )


def _why(one: _Sums, machine: EagerMachine) -> str:
    """Return why the kernel's time differs from the prediction, as far as known; "" if it does not."""
    if abs(one.predicted - one.measured) <= NEAR * one.measured:
        return ""
    faster = one.measured < one.predicted
    if not machine.on_gpu and not faster and one.flop > _MORE * one.eager_flop > 0:
        return f"by the cost model its loops hold {one.flop / one.eager_flop:.1f} × the FLOP of eager's operators"
    if one.start > max(one.memory, one.arithmetic):
        return f"it is short: beginning work on all threads takes {'less' if faster else 'longer'} than measured alone"
    if one.arithmetic > one.memory and machine.on_gpu:
        return (
            f"it takes {'fewer' if faster else 'more'} instructions, or issues them {'faster' if faster else 'slower'}"
        )
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
