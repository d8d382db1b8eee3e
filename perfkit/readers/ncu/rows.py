"""From the results of a report to the kernel table, with everything else the report knows in its `facts`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from perfkit import profile_names, table
from perfkit.cost.names import family_of_kernel_name
from perfkit.hardware.ceilings import MEMORY
from perfkit.profile_names import from_trace
from perfkit.readers import kernel_names
from perfkit.readers.ncu import metrics, missing, plausible, roofs, rules, traffic, work
from perfkit.readers.ncu.results import GRAPH, WORKLOADS, NcuResult
from perfkit.readers.ncu.roofs import AT_CAPTURED, AT_MAXIMUM

EXACT_READER = "ncu-report"  # gives values as stored; pages are printed with a few digits


def make_table(results: list[NcuResult], path: Path, reader: str, warnings: list[str]) -> table.KernelTable:
    """The kernel table of a report, in launch order.

    `facts` holds `tool`; `gpus` (attributes as stored); `ceilings` (the roofs at the captured clock, medians over
    kernels, as `perfkit.hardware.ceilings.Ceilings`); `row_ceilings` (the same for every row, by resource);
    `max_clock_ceilings`; `kernels` (for each row its roofs, stall reasons, limits, excess and NVIDIA's rules); and
    `missing` (what was not collected, with the option that supplies it).
    """
    per_kernel = [roofs.of_kernel(result) for result in results]
    gpu = next((found for result in results if (found := roofs.gpu_of(result))), None)
    ceilings = roofs.summary(per_kernel, gpu, AT_CAPTURED)
    at_maximum = roofs.at_maximum_clock(gpu, results[0])
    when = AT_CAPTURED
    if not any(per_kernel) and MEMORY in at_maximum:  # `--metrics` alone: no clocks were recorded
        when, per_kernel = AT_MAXIMUM, [at_maximum] * len(results)
        ceilings = roofs.summary(per_kernel, gpu, when)
    lacking = missing.lines(results)
    facts: dict[str, Any] = {
        "tool": "ncu",
        "steps": 1,
        "gpus": [_builtins(gpu)] if gpu else [],
        "ceilings": _builtins(ceilings),
        "row_ceilings": _by_row(per_kernel),
        "ceilings_hold": when.words,
        "max_clock_ceilings": at_maximum,
        "kernels": [_details(result, own) for result, own in zip(results, per_kernel, strict=True)],
        "missing": lacking,
    }
    said = [*warnings, *missing.failure(results), *plausible.doubts(results), *_warnings(results)]
    said += missing.sentences(lacking)
    rows = [_row(result, order) for order, result in enumerate(results)]
    return table.build(rows, said, {"path": str(path), "reader": reader}, facts)


def _row(result: NcuResult, order: int) -> dict[str, Any]:
    duration = _positive(result.number(metrics.DURATION))
    flop = {resource: value for resource, value in work.flop(result).items() if math.isfinite(_positive(value))}
    active, instructions = metrics.tensor_active(result), result.number(*metrics.INSTRUCTIONS)
    measures: dict[str, Any] = {
        "duration_ns": duration,
        "time_origin": _origin(duration, "counter"),
        **{f"flop_{resource}": value for resource, value in flop.items()},
        "flop_origin": "derived" if flop else "absent",
        **_known(traffic.columns(result)),
        "tensor_active": _positive(active),
        "tensor_origin": _origin(active, "counter"),
        "instructions": _positive(instructions),
        "instructions_origin": _origin(instructions, "counter"),
    }
    return {**_identity(result, order), **_place(result), **_launch(result), **measures}


def _identity(result: NcuResult, order: int) -> dict[str, Any]:
    name = result.name or result.function or "(unnamed)"
    device = _whole(result.number("launch__device_id"))
    return {
        "name": name,
        "short_name": kernel_names.short_name_by_tool(name, result.function),
        "family": family_of_kernel_name(f"{name[:2000]} {result.function[:2000]}"),
        "kind": "graph" if result.type == GRAPH else "gpu_kernel",
        "device": f"cuda:{device}" if device is not None else "cuda",
        "stream": _whole(result.number("launch__stream_id")),
        "order": order,
    }


def _place(result: NcuResult) -> dict[str, Any]:
    """Place in the model from the NVTX ranges around the launch, the innermost of each kind."""
    ranges = [from_trace(name) for name in result.ranges]
    found: dict[str, Any] = {"range": "/".join(ranges) or None}
    for name in ranges:
        for column, of in (("pass", profile_names.pass_of), ("module", profile_names.module_of)):
            if (said := of(name)) is not None:
                found[column], found["placed_by"] = said, "range"
    step = next((s for name in reversed(ranges) if (s := profile_names.step_of(name)) is not None), "")
    if not (step.isascii() and step.isdecimal() and len(step) < 10):
        return found
    return {**found, "step": int(step), "placed_by": "range"}


def _launch(result: NcuResult) -> dict[str, Any]:
    """How a kernel was launched; nothing for a range or a graph, whose launches are many."""
    if result.type:
        return {}
    occupancy = result.number(metrics.ACHIEVED_OCCUPANCY, metrics.THEORETICAL_OCCUPANCY) / 100
    shared = result.number("launch__shared_mem_per_block")
    if not math.isfinite(shared):
        shared = sum(result.number(f"launch__shared_mem_per_block_{part}") for part in ("static", "dynamic", "driver"))
    return {
        **{
            f"{what}_{axis}": _whole(result.number(f"launch__{what}_dim_{axis}"))
            for what in ("grid", "block")
            for axis in "xyz"
        },
        "registers": _whole(result.number("launch__registers_per_thread")),
        "shared_bytes": _positive(shared),
        "occupancy": _positive(occupancy),
        "waves": _positive(_waves(result)),
    }


def _waves(result: NcuResult) -> float:
    """Waves a multiprocessor; where it is not stored, or printed as 0.00, by the blocks and limits of the occupancy."""
    stored, limits = result.number(metrics.WAVES), _limits(result)
    slots = result.number("launch__sm_count", "device__attribute_multiprocessor_count") * min(
        limits.values(), default=math.nan
    )
    blocks = math.prod(result.number(f"launch__grid_dim_{axis}") for axis in "xyz")
    return blocks / slots if not stored > 0 and slots > 0 and math.isfinite(blocks) else stored


def _details(result: NcuResult, own: dict[str, float]) -> dict[str, Any]:
    """Return what a report says of one kernel beyond the table's columns; what it does not say is None."""
    return {
        "ceilings": own,
        "sm_clock_hz": _or_none(work.sm_clock(result)),
        "dram_share": _or_none(result.number(metrics.DRAM_SHARE) / 100),
        "busy": metrics.busy(result),
        "l2_sent_bytes": _or_none(traffic.l2_sent(result)),
        "stalls": metrics.stalls(result),
        "occupancy": _or_none(result.number(metrics.ACHIEVED_OCCUPANCY) / 100),
        "theoretical_occupancy": _or_none(result.number(metrics.THEORETICAL_OCCUPANCY) / 100),
        "occupancy_limits": _limits(result),
        "excessive_sectors": _or_none(_excess(result)),
        "sectors": _or_none(result.number(metrics.SECTORS)),
        "local_sectors": _or_none(_local(result)),
        "spills": _or_none(result.number(metrics.SPILLS)),
        "evenness": _or_none(result.number(metrics.SM_ACTIVE) / (result.number(metrics.SM_ACTIVE_MOST) or math.nan)),
        "warp_threads": _or_none(result.number(metrics.THREADS)),
        "warp_threads_on": _or_none(result.number(metrics.THREADS_ON)),
        "excessive_shared_wavefronts": _or_none(result.number(metrics.EXCESSIVE_WAVEFRONTS)),
        "half_multiply_adds_per_cycle": _or_none(
            result.number("smsp__sass_thread_inst_executed_op_hfma_pred_on.sum.per_cycle_elapsed")
        ),
        "half_unknown": work.half_unknown(result),
        "sections": result.sections,
        "rules": rules.as_facts(result.rules),
    }


def _limits(result: NcuResult) -> dict[str, float]:
    """Blocks a multiprocessor that each resource allows, the tightest first."""
    found = {
        name.removeprefix(metrics.OCCUPANCY_LIMIT): result.number(name)
        for name in result.values
        if name.startswith(metrics.OCCUPANCY_LIMIT)
    }
    return dict(sorted(((k, v) for k, v in found.items() if v > 0), key=lambda item: item[1]))


def _excess(result: NcuResult) -> float:
    stored = result.number(metrics.EXCESSIVE_SECTORS)
    return stored if math.isfinite(stored) else result.number(metrics.SECTORS) - result.number(metrics.IDEAL_SECTORS)


def _local(result: NcuResult) -> float:
    stored = result.number(metrics.LOCAL_SECTORS)
    return stored if math.isfinite(stored) else sum(map(result.number, metrics.LOCAL_IN_L1))


def _by_row(per_kernel: list[dict[str, float]]) -> dict[str, list[float | None]]:
    names = sorted({name for own in per_kernel for name in own})
    return {name: [own.get(name) for own in per_kernel] for name in names}


def _warnings(results: list[NcuResult]) -> list[str]:
    found = []
    others = sorted({WORKLOADS.get(r.type, "other") for r in results} - {"kernel"})
    if others:
        found.append(f"some results are of several kernels ({', '.join(others)}): their counters are of all their work")
    devices = {r.text("device__attribute_display_name") for r in results} - {""}
    if len(devices) > 1:
        found.append(f"the report holds kernels of several devices: {', '.join(sorted(devices))}")
    return found


def _builtins(value: Any) -> Any:
    """Plain data as JSON keeps it."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(value))


def _known(columns: dict[str, float | str]) -> dict[str, float | str]:
    """Columns of some groups without values that cannot be; a group left without any has no origin."""
    cleaned = {name: _positive(value) if isinstance(value, float) else value for name, value in columns.items()}
    for group in (name.removesuffix("_origin") for name in columns if name.endswith("_origin")):
        values = [cleaned.get(name) for name in table.MEASURE_GROUPS[group]]
        if not any(isinstance(value, float) and math.isfinite(value) for value in values):
            cleaned[f"{group}_origin"] = "absent"
    return cleaned


def _positive(value: float) -> float:
    """Counters are never negative; a value that is comes from a damaged file and is unknown."""
    return value if 0 <= value < 1e30 else math.nan


def _whole(value: float) -> int | None:
    return int(value) if 0 <= value < 2**53 else None


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _origin(value: float, origin: str) -> str:
    return origin if math.isfinite(_positive(value)) else "absent"
