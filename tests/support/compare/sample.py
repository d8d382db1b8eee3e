"""Comparisons for the renderers: one like a measured one, and one whose names attack whatever shows them."""

from __future__ import annotations

from perfkit import table
from perfkit.compare.judge import compare
from perfkit.compare.metrics import VerdictRule
from perfkit.compare.results import Comparison, Condition
from perfkit.compare.sides import LAUNCH, Side, Values, of_run
from perfkit.table import KernelTable
from tests.support.analysis.examples import FACTS, ROWS, backend, run

EVIL = "<img src=x onerror=alert(1)>|`[x](javascript:1)`\x1b[31m\u202e @all\n# h"


def steps_table(factor: float, fused: bool = False, name: str = "aten::mm") -> KernelTable:
    """Twelve profiled steps of four kernels, the matmul slower by `factor`; with `fused` two kernels as one."""
    rows = []
    for step in range(12):
        for kernel, pass_, module, ns, work, read, written in ROWS:
            if fused and kernel == "aten::exp":
                continue
            kernel = name if kernel == "aten::mm" else "fused_my_op_exp" if fused and kernel == "my::op" else kernel
            slow = (factor if kernel == name else 1) * (1 + step / 500)
            row = {
                "name": kernel, "short_name": kernel.split("::")[-1], "kind": "cpu_op", "order": len(rows),
                "step": step,
                "family": "matmul" if kernel == name else "fused" if "fused" in kernel else "elementwise",
                "pass": pass_, "module": module, "duration_ns": ns * slow,
                "operator": kernel.split("::")[-1], "bytes_read": read, "bytes_written": written, "placed_by": "range",
                "layer": 0 if module == "h.0" else None,
            }  # fmt: skip
            rows.append({**row, work[0]: work[1]} if work else row)
    facts = {**FACTS, "steps": 12, "step_ns": [410e3] * 12, "busy_ns": [350e3] * 12, "gaps": [
        {"cause": "Python", "pass": "forward", "ns": 12 * 60e3, "count": 36}]}  # fmt: skip
    return table.build(rows, facts=facts)


def side(label: str, factor: float, **more: object) -> Side:
    """A side of twelve launches, 0.4 ms a step times `factor`."""
    made = of_run(
        run(backend("eager", 0.4 * factor), tables={"eager": steps_table(factor, **more)}), "eager", label, "runs/toy"
    )
    values = [0.4e6 * factor * (1 + 0.002 * i) for i in range(12)]
    made.step = Values(values, LAUNCH, True, "runs/toy")
    made.memory = Values([2e8 * (1 + 0.001 * i) for i in range(12)], LAUNCH, True, "runs/toy")
    made.launch_of_step = list(range(12))
    return made


def measured() -> Comparison:
    """Three sides, one faster and one slower by its matmul, with a gate that says no."""
    found = compare(
        [side("base", 1.0), side("slower", 1.06), side("faster", 0.9, fused=True)], VerdictRule(), "12 launches"
    )
    found.perfkit = "0.1.0"
    found.conditions = [Condition(text="step>+3%", outcome="regressed", why="the whole interval lies beyond it")]
    return found


def hostile() -> Comparison:
    """Names that try to become markup, escapes or mentions."""
    found = compare([side(EVIL, 1.0, name=EVIL), side(f"{EVIL} 2", 1.2)], VerdictRule(), EVIL)
    found.differs, found.notes = [EVIL], [EVIL]
    found.conditions = [Condition(text=EVIL, outcome="cannot tell", why=EVIL)]
    return found
