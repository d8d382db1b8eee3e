"""The roofs of one kernel, from what its report stores.

    DRAM:  dram__bytes.sum.peak_sustained · dram__cycles_elapsed.avg.per_second
           else 2 · bus width / 8 · dram__cycles_elapsed.avg.per_second (equal wherever both are known)
           else the measured rate over the share of the peak that it is said to be
    L2:    32 · lts__lts2xbar_cycles_active.sum.peak_sustained · lts__cycles_elapsed.avg.per_second (read direction)

All hold at the clock of the capture: the tool holds the base clock unless an option changes that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfkit.hardware.ceilings import MEMORY, Ceiling, Ceilings
from perfkit.hardware.gpu import Gpu
from perfkit.hardware.peaks import find_row, peaks_of
from perfkit.readers.ncu import metrics, work
from perfkit.readers.ncu.results import NcuResult

L2 = "l2"


@dataclass(frozen=True)
class When:
    """The clocks that roofs hold for: in words, and by what the roofs are known."""

    words: str
    how: str


AT_CAPTURED = When("at the captured clock", "peak rate and clock stored in the report")
AT_MAXIMUM = When("at the maximum clock", "device attributes stored in the report: widths, units and maximum clocks")


def of_kernel(result: NcuResult) -> dict[str, float]:
    """Roofs at the captured clock by resource ("memory" and "l2" in bytes/s, units in FLOP/s); unknown is left out."""
    found = {MEMORY: dram(result), L2: l2(result)}
    return {
        **{name: value for name, value in found.items() if math.isfinite(value) and value > 0},
        **work.roofs(result),
    }


def dram(result: NcuResult) -> float:
    """Bytes/s that device memory can move at the captured clock; NaN where it is unknown."""
    clock = result.number(metrics.DRAM_CLOCK)
    stored = result.number(metrics.DRAM_PEAK) * clock
    if math.isfinite(stored):
        return stored
    by_width = 2 * result.number(metrics.BUS_WIDTH) / 8 * clock
    if math.isfinite(by_width):
        return by_width
    share = result.number(metrics.DRAM_SHARE) / 100
    return result.number(metrics.DRAM_RATE) / share if share > 0 else math.nan


def l2(result: NcuResult) -> float:
    """Bytes/s that L2 can send to the multiprocessors at the captured clock."""
    return metrics.SECTOR_BYTES * result.number(metrics.L2_PEAK) * result.number(metrics.L2_CLOCK)


def gpu_of(result: NcuResult) -> Gpu | None:
    """The GPU as the report's device attributes describe it; None where the report names none."""
    name = result.text("device__attribute_display_name")
    major, minor = (result.number(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    if not name and not math.isfinite(major):
        return None
    return Gpu(
        index=int(_known(result.number("launch__device_id")) or 0),
        name=name or f"compute capability {major:.0f}.{minor:.0f}",
        compute_capability=f"{major:.0f}.{minor:.0f}" if math.isfinite(major + minor) else None,
        multiprocessors=_whole(result.number("device__attribute_multiprocessor_count", "launch__sm_count")),
        memory_bus_bits=_whole(result.number(metrics.BUS_WIDTH)),
        l2_bytes=_whole(result.number("device__attribute_l2_cache_size")),
        max_clock_hz=_known(result.number("device__attribute_max_gpu_frequency_khz") * 1e3),
        memory_clock_hz=_known(result.number("device__attribute_max_mem_frequency_khz") * 1e3),
        told_by="report",
    )


def summary(per_kernel: list[dict[str, float]], gpu: Gpu | None, when: When) -> Ceilings | None:
    """The roofs of the report as one set, each the median over its kernels; None where no kernel has a DRAM roof.

    `datasheet` holds the vendor's figures; the roofs at the maximum clock are `perfkit.hardware.peaks.peaks_of`.
    """
    names = sorted({name for roofs in per_kernel for name in roofs})
    middle = {name: _median([roofs[name] for roofs in per_kernel if name in roofs]) for name in names}
    if MEMORY not in middle:
        return None
    row = find_row(gpu.name) if gpu else None
    datasheet = {MEMORY: row.dram_gb_s * 1e9, **{n: t * 1e12 for n, t in row.tflops.items()}} if row else {}
    l2_bytes = float(gpu.l2_bytes or 1) if gpu else 1.0
    return Ceilings(
        fingerprint="",
        device="cuda",
        device_name=gpu.name if gpu else "",
        measured_at="during the capture" if when is AT_CAPTURED else "in no run (device attributes)",
        threads=0,
        bandwidth=[*([(l2_bytes, middle[L2])] if L2 in middle else []), (2 * l2_bytes, middle[MEMORY])],
        caches={"L2": l2_bytes},
        compute={name: value for name, value in middle.items() if name not in (MEMORY, L2)},
        details=[_ceiling(name, value, when) for name, value in middle.items()],
        datasheet=datasheet,
        datasheet_source=f"datasheet of {row.name}: {row.source}" if row else "",
    )


def at_maximum_clock(gpu: Gpu | None, result: NcuResult) -> dict[str, float]:
    """Roofs at the GPU's maximum clocks: from the rates stored in the report, else from the device's attributes."""
    if gpu is None:
        return {}
    found = dict(peaks_of(gpu).values)
    clock = work.sm_clock(result)
    if gpu.max_clock_hz and clock > 0:
        scaled = {name: value / clock * gpu.max_clock_hz for name, value in work.roofs(result).items()}
        found.update({name: value for name, value in scaled.items() if name.startswith("vector_")})
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _ceiling(name: str, value: float, when: When) -> Ceiling:
    memory = name in (MEMORY, L2)
    words = {MEMORY: "DRAM", L2: "L2 reads"}.get(name, name)
    return Ceiling(
        name=f"{words} {when.words}",
        resource=name,
        unit="B/s" if memory else "FLOP/s",
        value=value,
        how=when.how,
    )


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None


def _whole(value: float) -> int | None:
    return int(value) if 0 < value < 2**53 else None
