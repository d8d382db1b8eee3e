"""Sources of the difference of two steps, in parts that add up to it exactly.

    step = kernels by pass and family − what of them overlaps + the time without a kernel − what only profiling adds

Nothing is scaled. Kernels and gaps are as profiled; the step is as timed without a profiler; what the profiled step
takes more than the timed one is a line of its own (negative), for a profiler lengthens steps of many small kernels
more than others. Where a side was not timed the profiled step is compared, and where a profile does not
show its steps, the kernels alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.analysis.results import BackendReport
from perfkit.analysis.step_results import Accounting
from perfkit.compare.results import Waterfall, WaterfallLine

TIMED, PROFILED, KERNELS = "timed", "profiled", "kernels"
OVERLAP = "kernels at the same time"
GAPS = "no kernel running"
UNEXPLAINED = "not explained"
PROFILER = "timed steps minus the profiled ones"
_LEAST = 1e-9  # of the step: rounding


def waterfall(
    first: BackendReport, second: BackendReport, timed: tuple[float | None, float | None] = (None, None)
) -> Waterfall:
    """From `first` to `second`; `timed` are their timed steps in ns, or None.

    The lines of level 0 sum to `difference_ns` up to rounding in the last digit, as do the children of each line.
    """
    accounts = first.accounting, second.accounting
    lines = _kernel_lines(first.pass_families, second.pass_families)
    one, other = accounts
    if one is None or other is None or first.per != "step" or second.per != "step":
        return _whole(KERNELS, first.kernel_ns, second.kernel_ns, lines)
    lines += _line(OVERLAP, 0, "rest", one.kernel_ns - first.kernel_ns, other.kernel_ns - second.kernel_ns)
    lines += _gap_lines(one, other)
    profiled = one.profiled_step_ns, other.profiled_step_ns
    if timed[0] is None or timed[1] is None:
        return _whole(PROFILED, *profiled, lines)
    lines += _line(PROFILER, 0, "rest", timed[0] - profiled[0], timed[1] - profiled[1])
    return _whole(TIMED, timed[0], timed[1], lines)


def _whole(basis: str, first_ns: float, second_ns: float, lines: list[WaterfallLine]) -> Waterfall:
    least = _LEAST * max(first_ns, second_ns, 1.0)
    kept = [line for line in lines if max(abs(line.first_ns), abs(line.second_ns)) > least]
    return Waterfall(
        basis=basis, first_ns=first_ns, second_ns=second_ns, difference_ns=second_ns - first_ns, lines=kept
    )


def _line(name: str, level: int, kind: str, first_ns: float, second_ns: float) -> list[WaterfallLine]:
    return [
        WaterfallLine(
            name=name, level=level, kind=kind, first_ns=first_ns, second_ns=second_ns,
            difference_ns=second_ns - first_ns,
        )
    ]  # fmt: skip


def _kernel_lines(
    first: Mapping[str, Mapping[str, float]], second: Mapping[str, Mapping[str, float]]
) -> list[WaterfallLine]:
    """A line a pass, and below it one a family, the largest difference first."""
    lines = []
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name, {}), second.get(name, {})
        lines += _line(name, 0, "pass", sum(one.values()), sum(other.values()))
        lines += _below(one, other, "family")
    return lines


def _gap_lines(first: Accounting, second: Accounting) -> list[WaterfallLine]:
    """Time without a kernel, by cause; what no cause explains; and what is left of the profiled step."""
    one, other = ({g.cause: g.time_ns for g in a.gaps} for a in (first, second))
    lines = _line(GAPS, 0, "gaps", sum(one.values()), sum(other.values())) + _below(one, other, "cause")
    rest = [a.profiled_step_ns - a.kernel_ns - sum(g.time_ns for g in a.gaps) for a in (first, second)]
    return lines + _line(UNEXPLAINED, 0, "rest", rest[0], rest[1])


def _below(first: Mapping[str, float], second: Mapping[str, float], kind: str) -> list[WaterfallLine]:
    names = dict.fromkeys([*first, *second])
    lines = [line for name in names for line in _line(name, 1, kind, first.get(name, 0.0), second.get(name, 0.0))]
    return sorted(lines, key=lambda line: -abs(line.difference_ns))
