"""Kernels on a CPU that take many times as long as their equals: something else had the core of one of the threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding
from perfkit.analysis.roofline.roof import Booleans, Reals
from perfkit.analysis.rules.base import ON_A_CPU, Case, Rule
from perfkit.analysis.words import percent

_EQUALS = 8  # calls of one operator with one set of shapes: of fewer nobody knows what is usual
_USUAL = 0.25  # the quantile that is usual: on a busy machine most calls may be interrupted
_TIMES, _LEAST_NS = 3, 5_000.0  # how many times the usual, and how much more, an interrupted call takes
_STEADY = 2  # times the same call of the quickest step: less is a difference of strides, which shapes do not tell
_NOTABLE = 0.05  # of the step


def _interrupted(rule: Rule, case: Case) -> Iterator[Finding]:
    if not case.on_cpu or case.steps < 2:
        return
    usual, rows = _equals(case)
    more = case.per_step((case.judged.time - usual)[rows].sum())
    if case.share(more) < _NOTABLE:
        return
    kernel, count, own = _largest(case, usual, rows)
    yield rule.finding(
        case,
        f"{rows.sum():,} of {len(rows):,} kernels take at least {_TIMES} times as long as their equals: "
        f"{units.text(more, 'ns')} of waiting{case.a_step}",
        f"Such calls are {percent(case.time(rows) / case.report.kernel_ns)} of the kernel time. The largest part of "
        f"the waiting, {units.text(case.per_step(own), 'ns')}, is in {count:,} call{'s' if count != 1 else ''} of "
        f"{kernel}. Operators whose threads wait for each other end with the last: one thread that is put aside for "
        "something else holds up all. What is said below of kernels and their roofs leaves this waiting out.",
        more,
        more,
        rows=rows,
    )


def waited(case: Case) -> Reals | None:
    """What each row took beyond its usual time in ns, 0 where it was not interrupted; None where nothing is told."""
    rows = next((rows for found, rows in case.claims if found.name == INTERRUPTED.name), None)
    return None if rows is None else np.where(rows, np.nan_to_num(case.judged.time) - _equals(case)[0], 0.0)


def _equals(case: Case) -> tuple[Reals, Booleans]:
    """What the equals of each row usually take in ns, and which rows were interrupted."""
    frame = case.frame.assign(time=np.nan_to_num(case.judged.time), shapes=case.text("shapes"))
    same = frame.groupby(["name", "shapes"], sort=False)["time"]
    usual = same.transform("quantile", _USUAL).to_numpy(float)
    nth = frame.groupby(["step", "name", "shapes"], sort=False).cumcount()
    quickest = frame.groupby(["name", "shapes", nth], sort=False)["time"].transform("min").to_numpy(float)
    time = frame["time"].to_numpy(float)
    rows = (time > _TIMES * usual) & (time > usual + _LEAST_NS) & (time > _STEADY * quickest)
    return usual, rows & (same.transform("size").to_numpy() >= _EQUALS)


def _largest(case: Case, usual: Reals, rows: Booleans) -> tuple[str, int, float]:
    """The operator that lost most, with what its calls take: how many of them, and how long they waited in all."""
    names = np.array([f"{n} of {s}" for n, s in zip(case.text("short_name"), case.text("shapes"), strict=True)], object)
    time = np.nan_to_num(case.judged.time)
    chosen, index = np.unique(names[rows], return_inverse=True)
    lost = np.bincount(index, weights=(time - usual)[rows])
    most = int(lost.argmax())
    own = rows & (names == chosen[most])
    longest, least = units.text(float(time[own].max()), "ns"), units.text(float(np.median(usual[own])), "ns")
    return f"{chosen[most]} (usually {least}, the longest {longest})", int(own.sum()), float(lost[most])


INTERRUPTED = Rule(
    name="interrupted",
    summary="calls that take many times as long as their equals",
    where=ON_A_CPU,
    what="Two calls of an operator with the same shapes take about as long. Where some take many times as long, a "
    "thread of theirs did not run: other programs, DataLoader workers or more threads than cores had its core. Means "
    "of such kernels say more about the machine's other work than about them.",
    recognised=f"At least {_EQUALS} calls of one operator and one set of shapes in several profiled steps; those that "
    f"take more than {_TIMES} times the lower quartile, and more than {_STEADY} times what the same call of another "
    "step took.",
    estimate="What they take beyond the lower quartile of their equals.",
    remedies=(
        "Leave a core to what else runs: fewer DataLoader workers, fewer threads (OMP_NUM_THREADS); stop other "
        "programs, and profile again.",
    ),
    example="Four DataLoader workers beside two threads on two cores: most products of a step took 14 µs, and many "
    "120.",
    find=_interrupted,
)
RULES = (INTERRUPTED,)
