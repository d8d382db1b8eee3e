"""Time of the bytes and the instructions of a fused kernel on a GPU.

    a loop     max(its share of the bytes / bandwidth, its instructions / rate)
    a kernel   Σ over its loops, which run one after the other

Bytes are the compiler's own buffers; bandwidth is that of the roof (`perfkit.analysis.roofline.memory.passing`): L2's
where they fit it, else main memory's, and for what is read and written alike that of work in place. The compiler's loop
bodies give the instructions (fact `loops` of the table); they are issued at the measured rate of multiply-adds, each of
which the vector ceiling counts twice. A kernel whose loops are unknown has bytes only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit.analysis.roofline.memory import passing
from perfkit.analysis.rules import Case

_MULTIPLY_ADD = 2.0  # FLOP


def times(case: Case, rows: Sequence[int]) -> dict[int, tuple[float, float, float]]:
    """For each of `rows` what its bytes, its instructions, and both together take, ns; NaN: its bytes are unknown."""
    assert case.ceilings is not None
    read, written = (case.frame[name].to_numpy(float) for name in ("bytes_read", "bytes_written"))
    memory = passing(read, written, case.ceilings)
    rate = case.ceilings.compute.get("vector_fp32", 0.0) / _MULTIPLY_ADD / 1e9
    known, names = case.facts.get("loops") or {}, case.text("name")
    return {row: _together(float(memory[row]), known.get(names[row]) or (), rate) for row in rows}


def _together(memory: float, loops: Sequence[Sequence[float]], rate: float) -> tuple[float, float, float]:
    """The same of one kernel, whose `loops` have bytes and instructions; `rate` is instructions a ns, 0: unknown."""
    bytes_ = np.array([loop[0] for loop in loops])
    issue = np.array([loop[1] for loop in loops]) / rate if rate else np.zeros(len(loops))
    if not len(loops) or not bytes_.sum():
        return memory, float(issue.sum()), max(memory, float(issue.sum()))
    return memory, float(issue.sum()), float(np.maximum(memory * bytes_ / bytes_.sum(), issue).sum())
