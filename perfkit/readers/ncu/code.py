"""The instructions of the kernels of a report: what was counted and sampled at each, with SASS, PTX and source lines.

NVIDIA's package alone gives them. Only the longest launch of the kernels that take most time is read.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from perfkit.instructions.results import (
    EXECUTED,
    FILLED,
    IDEAL_SECTORS,
    IDEAL_WAVEFRONTS,
    LOCAL_SECTORS,
    SAMPLES,
    SECTORS,
    THREADS,
    THREADS_ON,
    WAVEFRONTS,
    KernelCode,
)
from perfkit.readers import kernel_names
from perfkit.readers.ncu import child, metrics
from perfkit.readers.ncu.results import NcuResult

WORKER = Path(__file__).with_name("code_worker.py")
KERNELS = 8  # of which instructions are read, those with the most time
COUNTS = {
    SAMPLES: "smsp__pcsamp_sample_count",
    EXECUTED: "inst_executed",
    THREADS: "thread_inst_executed",
    THREADS_ON: "thread_inst_executed_true",
    SECTORS: metrics.SECTORS,
    IDEAL_SECTORS: metrics.IDEAL_SECTORS,
    LOCAL_SECTORS: metrics.LOCAL_SECTORS,
    WAVEFRONTS: "memory_l1_wavefronts_shared",
    IDEAL_WAVEFRONTS: "memory_l1_wavefronts_shared_ideal",
}
STALLS = r"smsp__pcsamp_warps_issue_stalled_((?!\w*_not_issued)\w+)"
# Counters that are sampled over time, by what they are called here; the tool writes what they are of before the name.
COURSES = {
    FILLED: r"sm__cycles_active\.avg",
    "instructions issued": r"sm__inst_executed_realtime\.avg\.pct_of_peak_sustained_elapsed",
    "tensor pipe": r"sm__pipe_tensor_cycles_active_realtime\.avg\.pct_of_peak_sustained_elapsed",
    "device memory": r"dramc__throughput\.avg\.pct_of_peak_sustained_elapsed",
    "L2": r"lts__throughput\.avg\.pct_of_peak_sustained_elapsed",
    "L1": r"l1tex__throughput\.avg\.pct_of_peak_sustained_elapsed",
}
_SAMPLED = r"(?:pmsampling:|(?:\w+\.)?Triage\w*\.)"
_SECTION = "Source Counters"
_UNITS = {"sm": "the SM", "l1tex": "L1", "lts": "L2"}


def read_code(path: Path, results: list[NcuResult]) -> tuple[list[KernelCode], str]:
    """Return the code of the kernels in `results`, read from the report at `path`, the most time first.

    The second value says why it is missing, or "" where nothing is wrong.
    """
    chosen = _longest(results)
    folder = child.package_folder()
    if not chosen or folder is None:
        return [], ""
    request = {
        "path": str(path.resolve()),
        "positions": [order for order, _ in chosen],
        "counts": COUNTS,
        "stalls": STALLS,
        "courses": {name: _SAMPLED + metric for name, metric in COURSES.items()},
        "package": str(folder),
        "memory": child.MEMORY,
    }
    try:
        lines = child.said(WORKER, request, child.SECONDS).splitlines()
        found = {made.order: made for made in (msgspec.json.decode(line, type=_Code) for line in lines)}
    except (child.Failed, msgspec.DecodeError) as error:
        return [], f"the instructions of its kernels cannot be read: {error}"
    made = [_kernel(results[order], launches, found[order]) for order, launches in chosen if order in found]
    return [one for one in made if one.instructions], ""


class _Code(KernelCode, kw_only=True):
    """The worker's part of a kernel's code."""

    name: str = ""


def _longest(results: list[NcuResult]) -> list[tuple[int, int]]:
    """The place of the longest launch of each kernel with counted instructions, and how many launches it has."""
    launches: dict[tuple[str, str], list[int]] = {}
    for place, result in enumerate(results):
        if any(_SECTION.replace(" ", "") == section.replace(" ", "") for section in result.sections):
            launches.setdefault((result.name, result.function), []).append(place)

    def time(place: int) -> float:
        found = results[place].number(metrics.DURATION)
        return found if math.isfinite(found) else 0.0

    by_time = sorted(launches.values(), key=lambda places: -sum(map(time, places)))
    return [(max(places, key=time), len(places)) for places in by_time[:KERNELS]]


def _kernel(result: NcuResult, launches: int, code: _Code) -> KernelCode:
    duration = result.number(metrics.DURATION)
    shares: dict[str, Any] = {_UNITS[unit]: share for unit, share in metrics.busy(result).items()}
    dram = result.number(metrics.DRAM_SHARE) / 100
    if math.isfinite(dram):
        shares["device memory"] = dram
    unit = max(shares, key=lambda name: shares[name], default="")
    return KernelCode(
        name=kernel_names.short_name_by_tool(result.name, result.function),
        function=result.function,
        order=code.order,
        launches=launches,
        duration_ns=duration if math.isfinite(duration) else None,
        busiest=min(1.0, shares[unit]) if unit else None,
        unit=unit,
        instructions=code.instructions,
        sources=code.sources,
        markers=code.markers,
        courses=code.courses,
    )
