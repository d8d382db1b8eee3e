"""Kernels on a CPU that take many times as long as their equals: fresh pages in their results, or a core that was busy.

Neither is the kernel's own: `waited` returns what each row lost, and the rules about roofs leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding
from perfkit.analysis.roofline.roof import Booleans, Reals
from perfkit.analysis.rules.base import ON_A_CPU, Case, Rule
from perfkit.analysis.words import number, operands

_EQUALS = 3  # calls of one operator with one set of shapes: of fewer nobody knows what is usual
_USUAL = 0.25  # the quantile that is usual: on a busy machine most calls may have waited
_TIMES, _LEAST_NS = 3, 5_000.0  # how many times the usual, and how much more, a call takes that has waited
_STEADY = 2  # times the same call of the quickest step: less is a difference of strides, which shapes do not show
_NOTABLE = 0.05  # of the kernel time, and of the step
_TOGETHER = (
    "Operators whose threads wait for each other end with the last: one thread that is put aside for something else "
    "holds up all."
)
_ALONE = "The thread was put aside for something else meanwhile."
_OTHERS = "Stop other programs{}, and profile again."
_WORKERS = ", take fewer DataLoader workers"
_PAGE = 4096
_PAGES = 32  # of a result: less is not given back to the system
_A_PAGE_NS = (200.0, 3_000.0)  # what the system takes to clear one, on machines that were seen


def waited(case: Case) -> Reals | None:
    """Return the time of each row beyond its usual one in ns, 0 if that is not many times as much; None if no row did,
    on a GPU, and for a single step."""
    if not case.on_cpu or case.steps < 2:
        return None
    import pandas as pd

    step = case.frame["step"].to_numpy(float, na_value=np.nan)
    texts = {name: case.text(name) for name in ("name", "shapes")}
    frame = pd.DataFrame({**texts, "step": step, "time": np.nan_to_num(case.judged.time)})
    same = frame.groupby(["name", "shapes"], sort=False)["time"]
    usual = same.transform("quantile", _USUAL).to_numpy(float)
    nth = frame.groupby(["step", "name", "shapes"], sort=False).cumcount()
    quickest = frame.groupby(["name", "shapes", nth], sort=False)["time"].transform("min").to_numpy(float)
    time = frame["time"].to_numpy(float)
    rows = (time > _TIMES * usual) & (time > usual + _LEAST_NS) & (time > _STEADY * quickest)
    rows &= same.transform("size").to_numpy() >= _EQUALS
    more: Reals = np.where(rows, time - usual, 0.0)
    return more if more.any() else None


def left_out(case: Case, more: Reals) -> str:
    """A sentence for a finding that leaves out what calls have waited."""
    return (
        f" Calls that took {_TIMES} times as long as their equals and more are counted as if they had not: fresh pages "
        f"or a busy core cost {units.text(case.per_step(more.sum()), 'ns')}{case.a_step} of the profile."
    )


def _uneven(rule: Rule, case: Case) -> Iterator[Finding]:
    more = waited(case)
    if more is None:
        return
    rows, paged = more > 0, _by_pages(case, more)
    if case.about.fresh_bytes is not None:  # `fresh-pages` is about the timed step; the profiler has some of its own
        rows &= ~paged
    time = case.per_step(more[rows].sum())
    if case.share(time) < _NOTABLE or case.per_step(more.sum()) < _NOTABLE * case.report.kernel_ns:
        return
    kernel, count, own = _largest(case, more, rows)
    pages = case.per_step(more[rows & paged].sum())
    calls = "call" if case.per_step(count) == 1 else "calls"
    alone = (case.about.environment.get("threads") or {}).get("count") == 1
    of_pages = f" {units.text(pages, 'ns')} is about what fresh pages in their results take." if pages else ""
    yield rule.finding(
        case,
        f"{_count(case, rows.sum())} of {_count(case, len(rows))} kernels{case.a_step} take at least {_TIMES} times as "
        f"long as their equals: {units.text(time, 'ns')} of waiting",
        f"The largest part, {units.text(case.per_step(own), 'ns')}, is in {_count(case, count)} {calls} of "
        f"{kernel}.{of_pages} {_ALONE if alone else _TOGETHER}",
        time,
        time,
        rows=rows,
        remedy=_OTHERS.format(_WORKERS if case.loader_workers else "") if alone else "",
    )


def _count(case: Case, rows: float) -> str:
    return number(case.per_step(rows))


def _by_pages(case: Case, more: Reals) -> Booleans:
    """The rows that lost about what clearing the pages of their results takes."""
    pages = np.nan_to_num(case.frame["bytes_written"].to_numpy(float)) / _PAGE
    each = np.divide(more, pages, out=np.zeros(len(more)), where=pages >= _PAGES)
    found: Booleans = (each >= _A_PAGE_NS[0]) & (each <= _A_PAGE_NS[1])
    return found


def _largest(case: Case, more: Reals, rows: Booleans) -> tuple[str, int, float]:
    """The operator that lost most, with what its calls take; how many of them waited, and how long in all."""
    shapes = case.text("shapes")
    pairs = zip(case.text("short_name"), map(operands, shapes), strict=True)
    names = np.array([f"{name} of {taken}" if taken else name for name, taken in pairs], object)
    chosen, index = np.unique(names[rows], return_inverse=True)
    lost = np.bincount(index, weights=more[rows])
    most = int(lost.argmax())
    own, time = rows & (names == chosen[most]), np.nan_to_num(case.judged.time)
    usual, longest = float(np.median((time - more)[own])), float(time[own].max())
    longest_kernel = f"{chosen[most]} (usually {units.text(usual, 'ns')}, the longest {units.text(longest, 'ns')})"
    return longest_kernel, int(own.sum()), float(lost[most])


RULES = (
    Rule(
        name="unequal-calls",
        summary="calls that take many times as long as their equals",
        where=ON_A_CPU,
        what="Two calls of an operator with the same shapes take about as long. Where some take many times as long, a "
        "thread of theirs did not run: other programs, DataLoader workers or more threads than cores had its core. Or "
        "they wrote into pages that the system had to clear first.",
        recognised=f"At least {_EQUALS} calls of one operator and one set of shapes in several profiled steps; those "
        f"that take more than {_TIMES} times the lower quartile, and more than {_STEADY} times what the same call of "
        f"another step took. Together they lost at least {_NOTABLE:.0%} of the kernel time and of the step. In a run "
        "or a capture, what fresh pages explain is left to `fresh-pages`: the profiler's own memory causes more of "
        "them than the program has.",
        estimate="What they take beyond the lower quartile of their equals.",
        remedies=(
            "Leave a core to what else runs: fewer DataLoader workers, fewer threads (OMP_NUM_THREADS); stop other "
            "programs, and profile again.",
        ),
        example="A gradient of 8,192 numbers was added in 1 µs, and once in 6.4 ms.",
        find=_uneven,
        rank=1,
    ),
)
