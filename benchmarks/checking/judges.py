"""What `gpu_check.py` makes of figures and their witnesses: functions from both to `Check`s."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.checking.witness import Launch

KERNEL_TIME, STEP_TIME, NCU_TIME, LARGEST = 0.001, 0.03, 0.10, 10
COUNTED = 0.9  # of the kernel time has ncu's counters


@dataclass(frozen=True)
class Check:
    """One thing that was checked: a figure, its limit (both shares), and whether it holds."""

    name: str
    ok: bool
    figure: float | None = None
    limit: float | None = None
    note: str = ""

    def line(self) -> str:
        figure = "" if self.figure is None else f"{self.figure:.4%} (limit {self.limit:.1%})  "
        return f"{'holds' if self.ok else 'FAILS':6}{self.name:44} {figure}{self.note}"


def within(name: str, value: float | None, witness: float | None, limit: float, note: str = "") -> Check:
    """Whether `value` is within `limit` (a share) of `witness`, both in ns; a missing or zero value never is."""
    if not value or not witness or not math.isfinite(value) or not math.isfinite(witness):
        return Check(name, False, None, limit, f"{value} against {witness}")
    figure = abs(value / witness - 1)
    return Check(name, figure <= limit, figure, limit, note or f"{value / 1e3:.1f} µs against {witness / 1e3:.1f}")


def trace_checks(name: str, backend: Mapping[str, Any]) -> Check:
    """Whether every check of the backend's profile that applies holds."""
    found = backend.get("trace_checks") or []
    failed = [f"{c['says']}: {c['sentence']}" for c in found if c["holds"] is False]
    applied = sum(c["holds"] is not None for c in found)
    unusable = backend.get("unusable", "")
    note = "; ".join(failed) or unusable or f"{applied} of {len(found)} apply, all hold"
    return Check(f"trace checks, {name}", bool(applied) and not failed and not unusable, note=note)


def correct(name: str, backend: Mapping[str, Any]) -> Check:
    """Whether the run found the backend's results right."""
    ok = backend["status"] == "ok"
    return Check(f"correct, {name}", ok, note=backend["reason"] or ("" if ok else backend["status"]))


def joined(name: str, backend: Mapping[str, Any]) -> Check:
    """Whether ncu's counters stand beside nearly all of the kernel time."""
    share = (backend.get("coverage") or {}).get("counters") or 0.0
    return Check(
        f"ncu's counters are joined, {name}", share >= COUNTED, note=f"{share:.1%} of the kernel time has them"
    )


def function(name: str) -> str:
    """The function of a kernel's full name: tools differ in how they write namespaces, templates and parameters."""
    plain = name.replace("(anonymous namespace)", "").replace("<unnamed>", "")
    return re.split(r"[<(]", plain.removeprefix("void "), maxsplit=1)[0].split("::")[-1].strip()


def against_ncu(name: str, steps: Sequence[Sequence[Launch]], counted: Sequence[Launch]) -> Iterator[Check]:
    """The kernels that take most of the steps' time, held against the same launches of a step under ncu.

    Each launch is compared with the one that has the same place among those of its function, grid and block; the
    figure is the median of these ratios.
    """
    theirs = _by_place(counted)
    known = Counter(key[:2] for key in theirs)
    ratios: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    took: dict[tuple[Any, ...], float] = defaultdict(float)
    launched: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for step in steps:
        ours = _by_place(step)
        count = Counter(key[:2] for key in ours)
        for key, launch in ours.items():
            kernel = (launch.name, launch.shape)
            took[kernel] += launch.ns
            launched[kernel].add(count[key[:2]])
            if key in theirs and theirs[key].ns:
                ratios[kernel].append(launch.ns / theirs[key].ns)
    if not took:
        yield Check(f"ncu, {name}", False, note="the profile holds no kernel")
    for kernel in sorted(took, key=lambda kernel: -took[kernel])[:LARGEST]:
        what, shared = f"ncu, {name}, {function(kernel[0])[:40]}", known[function(kernel[0]), kernel[1]]
        if launched[kernel] == {shared}:
            note = f"{took[kernel] / len(ratios[kernel]) / 1e3:.1f} µs, median of {len(ratios[kernel])} launches"
            yield within(what, statistics.median(ratios[kernel]), 1.0, NCU_TIME, note)
        else:
            times = ", ".join(map(str, sorted(launched[kernel])))
            yield Check(what, False, None, NCU_TIME, f"launched {times} times a step, and {shared} times under ncu")


def _by_place(launches: Sequence[Launch]) -> dict[tuple[Any, ...], Launch]:
    """By function, shape, and place among the launches of the same function and shape."""
    seen: Counter[tuple[Any, ...]] = Counter()
    found = {}
    for launch in launches:
        key = (function(launch.name), launch.shape)
        found[(*key, seen[key])] = launch
        seen[key] += 1
    return found


def script_says(name: str, code: int, printed: str, wrong: str) -> Check:
    """Whether a script that checks something ended well: its last line, or those lines that hold the word `wrong`."""
    lines = printed.strip().splitlines()
    bad = [" ".join(line.split()) for line in lines if wrong in line]
    return Check(
        name, code == 0 and bool(lines) and not bad, note="; ".join(bad) or (lines or ["it printed nothing"])[-1]
    )
