"""Metrics that a report lacks, and the option of the tool that supplies it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfkit.readers.ncu import metrics, roofs, traffic, work
from perfkit.readers.ncu.results import NcuResult

_STATED = re.compile(r"(launch|device|profiler)__.*|.*\.peak_sustained|sm__maximum_warps_per_active_cycle_pct")
_SHOWN = 5  # kernels that a sentence names
_HALF = ",".join(f"smsp__sass_thread_inst_executed_op_h{op}_pred_on.sum" for op in ("add", "mul", "fma"))


@dataclass(frozen=True)
class Need:
    """Something that a report may lack: what it is, the option that collects it, and whether roofs depend on it."""

    what: str
    option: str
    lacks: Callable[[NcuResult], bool]
    for_roof: bool = False


def _without(*names: str) -> Callable[[NcuResult], bool]:
    return lambda result: not result.has(names)


NEEDS = (
    Need("the duration", "--metrics gpu__time_duration.sum", _without(metrics.DURATION), True),
    Need(
        "DRAM traffic",
        "--section SpeedOfLight",
        lambda r: not math.isfinite(r.number(metrics.DRAM_READ)) and not math.isfinite(traffic.dram_total(r)),
        True,
    ),
    Need(
        "DRAM reads apart from writes",
        f"--metrics {metrics.DRAM_READ},{metrics.DRAM_WRITE}",
        _without(metrics.DRAM_READ),
    ),
    Need(
        "the DRAM clock of the capture",
        f"--metrics {metrics.DRAM_CLOCK}",
        lambda r: not math.isfinite(roofs.dram(r)),
        True,
    ),
    Need(
        "fp32 and fp64 work",
        "--section SpeedOfLight_RooflineChart",
        lambda r: not {"vector_fp32", "vector_fp64"} & set(work.counted(r)),
        True,
    ),
    Need("fp16 vector work", f"--metrics {_HALF}", lambda r: "vector_fp16" not in work.counted(r)),
    Need(
        "the work of the tensor units, which is not 0",
        "--section SpeedOfLight_HierarchicalTensorRooflineChart",
        work.tensor_unknown,
        True,
    ),
    Need("L2 traffic", "--section MemoryWorkloadAnalysis_Tables", _without(metrics.L2_READ, metrics.L2_RATE)),
    Need(
        "how busy the tensor pipe was",
        "--section ComputeWorkloadAnalysis",
        lambda r: math.isnan(metrics.tensor_active(r)),
    ),
    Need("achieved occupancy", "--section Occupancy", _without(metrics.ACHIEVED_OCCUPANCY)),
    Need("stall reasons", "--section WarpStateStats", lambda r: not metrics.stalls(r)),
    Need("the number of instructions", "--section InstructionStats", _without(*metrics.INSTRUCTIONS)),
    Need("uncoalesced accesses", "--section SourceCounters", _without(metrics.EXCESSIVE_SECTORS, metrics.SECTORS)),
    Need("NVIDIA's advice", "--apply-rules yes", lambda r: not r.rules),
    Need("NVTX ranges (pass, layer, step)", "--nvtx", lambda r: not r.ranges),
)


def failed(results: list[NcuResult]) -> list[int]:
    """Return which kernels have nothing that was measured, where others of the report have."""
    without = [i for i, result in enumerate(results) if all(map(_STATED.fullmatch, result.values))]
    return without if len(without) < len(results) else []


def failure(results: list[NcuResult]) -> list[str]:
    """Return a sentence that names the kernels whose measurement failed, if there are any."""
    those = failed(results)
    if not those:
        return []
    named = ", ".join(f"kernel {i} ({(results[i].function or results[i].name)[:60]})" for i in those[:_SHOWN])
    more = f" and {len(those) - _SHOWN} more" if len(those) > _SHOWN else ""
    return [f"no values were measured of {named}{more}: the measurement failed, so time and work are unknown"]


def lines(results: list[NcuResult]) -> list[dict[str, Any]]:
    """Return what kernels lack that were measured: `what`, `option`, how many `kernels` of `of`, `for_roof`, and that
    as a sentence."""
    found = []
    without = set(failed(results))
    results = [result for i, result in enumerate(results) if i not in without]
    for need in NEEDS:
        count = sum(map(need.lacks, results))
        if count:
            some = "" if count == len(results) else f" of {count} of {len(results)} kernels"
            sentence = f"the report does not hold {need.what}{some}: capture with `{need.option}`"
            found.append(
                {
                    "what": need.what,
                    "option": need.option,
                    "kernels": count,
                    "of": len(results),
                    "for_roof": need.for_roof,
                    "text": sentence,
                }
            )
    return found


def sentences(found: list[dict[str, Any]]) -> list[str]:
    """Return what to say of them: a line each for what roofs depend on, and one for all the others."""
    said = [line["text"] for line in found if line["for_roof"]]
    others = [f"{line['what']} (`{line['option']}`)" for line in found if not line["for_roof"]]
    if others:
        said.append(f"{'nor does it' if said else 'the report does not'} hold {'; '.join(others)}")
    return said
