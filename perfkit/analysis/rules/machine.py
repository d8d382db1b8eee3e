"""Other ways to use the machine: other precisions, idle threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit import units
from perfkit.analysis.results import Finding, Unjudged
from perfkit.analysis.roofline.roof import BOUNDS, Booleans, Reals, unit_name
from perfkit.analysis.rules.base import ON_A_CPU, ON_BOTH, Case, Rule
from perfkit.analysis.rules.chains import on_complex
from perfkit.analysis.rules.uneven_kernels import left_out, waited
from perfkit.analysis.words import percent

_NOTABLE = 0.02  # of the step
_WORKING = 0.2  # of the roof of fp32: what reaches less is not held up by the units' rate
_FASTER = 1.2  # times the fp32 ceiling: less is not worth the digits
_LOWER = ("matrix_tf32", "matrix_bf16", "matrix_fp16")
_EMULATED = ("matrix_bf16", "matrix_fp16")
_WIDE_NS = 50e3  # a row shorter than this is not shared out over threads


def usual_of(case: Case, rows: Booleans) -> tuple[Reals, str]:
    """Return the time of each kernel without its waiting (`rules.uneven_kernels.waited`), ns, and the sentence that
    says so if some of `rows` have waited."""
    time, more = np.nan_to_num(case.judged.time), waited(case) if rows.any() else None
    if more is None:
        return time, ""
    return time - more, left_out(case, more) if more[rows].any() else ""


def _precision(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    fp32 = (np.nan_to_num(case.frame["flop_matrix_fp32"].to_numpy(float)) > 0) & ~on_complex(case)
    usual, without = usual_of(case, fp32)
    share = case.share(case.per_step(usual[fp32].sum()))
    if share < _NOTABLE:
        return
    rates = case.ceilings.compute if case.ceilings else {}
    now = rates.get("matrix_fp32")
    lower = max((name for name in _LOWER if rates.get(name)), key=lambda name: rates[name], default="")
    if not now or not lower:
        yield rule.cannot(
            f"fp32 matrix products take {percent(share)} of the {case.report.per}, and no ceilings say what a lower "
            "precision would do here"
        )
        return
    if rates[lower] < _FASTER * now:
        return
    bound = fp32 & case.judged.judged & (case.judged.bound == BOUNDS.index("matrix_fp32"))
    if not case.on_cpu:
        bound &= np.nan_to_num(case.judged.roof) >= _WORKING * case.judged.time
    if not bound.any():
        return
    time = case.per_step(usual[bound].sum())
    yield rule.finding(
        case,
        f"fp32 matrix products take {units.text(time, 'ns')} where {unit_name(lower)} is {rates[lower] / now:.1f} × "
        "as fast",
        f"{_by(case)}: {unit_name('matrix_fp32')} {units.text(now, 'FLOP/s')}, {unit_name(lower)} "
        f"{units.text(rates[lower], 'FLOP/s')}.{without}",
        time,
        time * (1 - now / rates[lower]),
        rows=bound,
        remedy=_IN_XLA if case.by_xla else _HALF if lower == "matrix_fp16" else "",
    )


def _by(case: Case) -> str:
    """Return the source of the rates, to begin a sentence."""
    return "By the datasheet" if case.ceilings and case.ceilings.on_paper else "Measured here"


_IN_XLA = (
    "Where the precision allows: jax.default_matmul_precision('tensorfloat32'), or bfloat16 arrays. Check the loss "
    "against that of fp32"
)
# The remedy for GPUs before Ampere, which have neither TF32 nor bf16.
_HALF = (
    "Where the precision allows: torch.autocast(dtype=torch.float16) with torch.amp.GradScaler. Check the loss against "
    "that of fp32"
)

PRECISION = Rule(
    name="fp32-matmul",
    summary="matrix products in fp32 where a lower precision is much faster",
    where=ON_BOTH,
    what="GPUs since Ampere multiply TF32, bf16 and fp16 on matrix units many times as fast as fp32 on vector units, "
    "and CPUs with AMX or AVX512-bf16 do the same for bf16.",
    recognised="fp32 products of real numbers bound by arithmetic, on a device whose ceiling of a lower "
    f"precision is at least {_FASTER} times that of fp32.",
    estimate="Their time at the same share of the faster ceiling. Products bound by memory are left out, although "
    f"half the bytes would help them too, and on a GPU those below {_WORKING:.0%} of the fp32 roof, which wait for "
    "something else (the steps of an LSTM); so is the cost of converting.",
    remedies=(
        "Where the precision allows: torch.set_float32_matmul_precision('high') for TF32, "
        "torch.autocast(dtype=bfloat16) for bf16. Check the loss: `perfkit run --dtype tf32` (or bf16) compares with "
        "the reference.",
    ),
    example="A linear layer on an H100: 50 TFLOP/s in fp32, 400 in TF32.",
    find=_precision,
    rank=10,
)


def _emulated(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    rates = case.ceilings.compute if case.ceilings else {}
    fp32 = rates.get("matrix_fp32")
    for name in _EMULATED:
        now = rates.get(name)
        bound = case.judged.judged & (case.judged.bound == BOUNDS.index(name))
        usual, without = usual_of(case, bound)
        time = case.per_step(usual[bound].sum())
        if not fp32 or not now or fp32 < _FASTER * now or case.share(time) < _NOTABLE:
            continue
        yield rule.finding(
            case,
            f"{unit_name(name)} takes {units.text(time, 'ns')} where fp32 is {fp32 / now:.1f} × as fast",
            f"{_by(case)}: {unit_name(name)} {units.text(now, 'FLOP/s')}, {unit_name('matrix_fp32')} "
            f"{units.text(fp32, 'FLOP/s')}.{without}",
            time,
            time - case.per_step(np.nansum(case.frame[f"flop_{name}"].to_numpy(float)[bound])) / fp32 * 1e9,
            rows=bound,
        )


EMULATED = Rule(
    name="slow-low-precision",
    summary="matrix products in bf16 or fp16 where fp32 is faster",
    where=ON_BOTH,
    what="A processor without matrix instructions for a low precision converts its numbers to fp32 and back, or "
    "computes them one by one: CPUs without AMX or AVX512-bf16 do, and GPUs before Ampere with bf16.",
    recognised="bf16 and fp16 products bound by arithmetic that take at least 2 % of the step, on a device whose "
    f"measured ceiling of fp32 is at least {_FASTER} times that of their precision.",
    estimate="Their time less that of the same FLOP at the fp32 ceiling: what converts numbers keeps far from its own. "
    "That fp32 has twice the bytes is left out.",
    remedies=(
        "Compute in fp32 on this device: leave autocast off, or load the weights in fp32. Low precision is for devices "
        "that have units for it.",
    ),
    example="A model under torch.autocast on a processor without AVX512-bf16: 21 GFLOP/s in bf16, 174 in fp32.",
    find=_emulated,
    rank=10,
)


_BY_THE_PROGRAM = (
    "OMP_NUM_THREADS is unset: look for torch.set_num_threads in the program, and for an affinity mask (taskset, a job "
    "script)."
)


def _threads(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    cores, used = _cores(case.about.environment, "physical", "usable", "quota"), _used(case.about.environment)
    if cores is None or used is None:
        yield rule.cannot("the profile has neither the machine's cores nor the threads that were used")
        return
    if used.together >= cores or case.loader_workers:  # whose processes need cores as well
        return
    wide = np.nan_to_num(case.judged.time) >= _WIDE_NS
    usual, without = usual_of(case, wide)
    wide &= usual >= _WIDE_NS  # a short one that waited is not shared out either
    time = case.per_step(usual[wide].sum())
    yield rule.finding(
        case,
        f"PyTorch works on {used.together:.0f} of {cores:.0f} cores",
        f"PyTorch ran with {used.words}. Kernels longer than {units.text(_WIDE_NS, 'ns')}, which can be shared out, "
        f"take {units.text(time, 'ns')}.{without}",
        time,
        time * (1 - used.together / cores),
        rows=wide,
        remedy=_BY_THE_PROGRAM if used.said == "unset" else "",
    )


def _crowded(rule: Rule, case: Case) -> Iterator[Finding | Unjudged]:
    cores, used = _cores(case.about.environment, "logical", "quota"), _used(case.about.environment)
    if cores is None or used is None or used.together <= cores:
        return  # idle-threads says what a profile lacks
    # Waiting of calls of unequal time stays in: threads that wait for a core are what this is about.
    wide = case.judged.judged & (np.nan_to_num(case.judged.time) >= _WIDE_NS)
    time, roof = case.time(wide), case.per_step(case.judged.roof[wide].sum()) * used.processes
    turns = f" by the {used.processes:.0f} processes in turn" if used.processes > 1 else ""
    yield rule.finding(
        case,
        f"{used.together:.0f} threads share {cores:.0f} cores",
        f"PyTorch ran with {used.words}. Kernels longer than {units.text(_WIDE_NS, 'ns')} take "
        f"{units.text(time, 'ns')}, and at their roofs{turns} {units.text(roof, 'ns')}.",
        time,
        time - min(time, roof),
        rows=wide,
    )


@dataclass(frozen=True)
class _Used:
    """Threads of PyTorch in each of some processes on this machine."""

    threads: float
    processes: float
    said: str

    @property
    def together(self) -> float:
        """The threads of all processes."""
        return self.threads * self.processes

    @property
    def words(self) -> str:
        """The threads in words, with what set them."""
        each = f" in each of {self.processes:.0f} processes" if self.processes > 1 else ""
        return f"{self.threads:.0f} thread{'s' if self.threads != 1 else ''}{each} (OMP_NUM_THREADS: {self.said})"


def _used(environment: Mapping[str, Any]) -> _Used | None:
    threads = _number(environment, "threads", "count")
    if threads is None:
        return None
    said = str((environment.get("threads") or {}).get("OMP_NUM_THREADS", "unset"))
    return _Used(threads, _number(environment, "threads", "processes") or 1.0, said)


def _cores(environment: Mapping[str, Any], *names: str) -> float | None:
    """Cores that the process may use: the least of the numbers with these names."""
    found = [value for value in (_number(environment, "cpu", name) for name in names) if value]
    return float(max(1, int(min(found)))) if found else None


def _number(environment: Mapping[str, Any], part: str, name: str) -> float | None:
    value = (environment.get(part) or {}).get(name)
    return float(value) if isinstance(value, (int, float)) else None


THREADS = Rule(
    name="idle-threads",
    summary="fewer threads than cores",
    where=ON_A_CPU,
    what="OMP_NUM_THREADS, torch.set_num_threads, or an affinity mask inherited from a launcher leaves cores idle.",
    recognised="The threads that PyTorch used, of all recorded processes together, against the physical cores that "
    "they may use, both stored with the run. Where a data loader has workers, nothing is said.",
    estimate="Kernels longer than 50 µs, as if they scaled with the cores. Those bound by memory scale less.",
    remedies=("Set OMP_NUM_THREADS to the number of physical cores, or leave it unset.",),
    example="OMP_NUM_THREADS=1, which a job script sets for every program.",
    find=_threads,
    rank=10,
)
CROWDED = Rule(
    name="crowded-threads",
    summary="more threads than cores",
    where=ON_A_CPU,
    what="Threads of one operator wait for each other at its end. Where they share cores, one waits for another that "
    "the system has put aside, and some wait by spinning, which takes the core from the one that works.",
    recognised="The threads that PyTorch used, of all recorded processes together, against the logical cores that "
    "they may use: as many as the machine has, as an affinity mask leaves, or as a quota of CPU time is worth.",
    estimate="Judged kernels longer than 50 µs, less their roof for each process in turn.",
    remedies=(
        "Set OMP_NUM_THREADS to the cores divided by the processes; in a container with a quota, to the quota. "
        "torchrun sets it to 1; processes that a program starts itself (torch.multiprocessing) each take all cores.",
    ),
    example="Two ranks by mp.spawn on two cores: steps took 16.6 and 19.1 ms, with OMP_NUM_THREADS=1 8.5 and 7.4.",
    find=_crowded,
    rank=10,
)
RULES = (PRECISION, EMULATED, THREADS, CROWDED)
