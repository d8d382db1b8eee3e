"""Bytes that a kernel moved at each level of memory, and the origin of each number."""

from __future__ import annotations

import math

from perfkit.readers.ncu import metrics, roofs
from perfkit.readers.ncu.results import NcuResult

COUNTER, DERIVED, ABSENT = "counter", "derived", "absent"


def columns(result: NcuResult) -> dict[str, float | str]:
    """The dram, l2 and l1 columns of the kernel table with their origins."""
    return {**_dram(result), **_l2(result), **_l1(result)}


def _dram(result: NcuResult) -> dict[str, float | str]:
    read, written = result.number(metrics.DRAM_READ), result.number(metrics.DRAM_WRITE)
    total, origin = read + written, COUNTER
    if not 0 <= total < math.inf:
        total, origin = dram_total(result), DERIVED
    known = any(map(math.isfinite, (read, written, total)))
    return {
        "dram_bytes": total,
        "dram_read_bytes": read,
        "dram_write_bytes": written,
        "dram_origin": origin if known else ABSENT,
    }


def dram_total(result: NcuResult) -> float:
    """Bytes between device memory and L2, derived: from the rate, else from the share of the roof and the time.

    From a `basic` report the bytes are share of peak · 2 · bus width / 8 · DRAM cycles, the roof times the duration.
    """
    duration = result.number(metrics.DURATION) / 1e9
    for total in (
        result.number("dram__bytes.sum"),
        result.number(metrics.DRAM_RATE) * duration,
        by_share(result),
    ):
        if math.isfinite(total):
            return total
    return math.nan


def by_share(result: NcuResult) -> float:
    """DRAM bytes from the share of the peak, bus width and DRAM cycles: all that a `basic` report has."""
    share = result.number(metrics.DRAM_SHARE) / 100
    cycles = result.number(metrics.DRAM_CYCLES)
    if math.isfinite(cycles):
        peak = result.number(metrics.DRAM_PEAK)
        return share * (peak if math.isfinite(peak) else 2 * result.number(metrics.BUS_WIDTH) / 8) * cycles
    return share * roofs.dram(result) * result.number(metrics.DURATION) / 1e9


def _l2(result: NcuResult) -> dict[str, float | str]:
    sectors = metrics.SECTOR_BYTES
    read, written = sectors * result.number(metrics.L2_READ), sectors * result.number(metrics.L2_WRITE)
    if not math.isfinite(read):
        read = l2_sent(result)
    known = math.isfinite(read) or math.isfinite(written)
    return {"l2_read_bytes": read, "l2_write_bytes": written, "l2_origin": DERIVED if known else ABSENT}


def l2_sent(result: NcuResult) -> float:
    """Bytes that L2 sent to the multiprocessors: what NVIDIA's L2 roofline counts, the read direction only."""
    return metrics.SECTOR_BYTES * result.number(metrics.L2_RATE) * result.number(metrics.DURATION) / 1e9


def _l1(result: NcuResult) -> dict[str, float | str]:
    cycles = result.number(*metrics.L1)
    if not math.isfinite(cycles):
        cycles = result.number(*(f"{name}.per_second" for name in metrics.L1)) * result.number(metrics.DURATION) / 1e9
    value = metrics.L1_LINE_BYTES * cycles
    return {"l1_bytes": value, "l1_origin": DERIVED if math.isfinite(value) else ABSENT}
