"""Join the counters of a report of ncu onto the kernel table of a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.capture.nsight import ncu
from perfkit.capture.nsight.process import ToolResult
from perfkit.errors import RunFailed

if TYPE_CHECKING:
    from perfkit.table import KernelTable

COUNTERS = f"counters{ncu.SUFFIX}"  # the report, beside the kernel table

Show = Callable[[str], None]


def counted_in(
    report: Path, ended: ToolResult, options: ncu.NcuOptions, limit_s: float | None, progress: ncu.NcuProgress
) -> KernelTable:
    """The table of ncu's `report`. Raises `PerfkitError` where the capture failed, or the report is not whole."""
    problem = ncu.failure(ended, report, options, limit_s)
    if problem:
        raise problem
    table = kernel_table(report)
    lost = lost_kernels(progress.kernels, len(table))
    if lost:
        raise RunFailed(lost, "Capture again; the report is kept.")
    return table


def lost_kernels(profiled: int, held: int) -> str:
    """A sentence when the report holds fewer kernels than the tool profiled; "" when it is whole."""
    return f"The report holds {held} of the {profiled} kernels that ncu profiled." if held < profiled else ""


def join_onto(path: Path, counters: KernelTable, layers: int) -> None:
    """Join onto the kernel table at `path`: all backends are judged by the run's own, measured ceilings."""
    from perfkit.readers.join import join

    join(kernel_table(path), counters, ceilings=False, one_layer=layers).write(path)


def layers_of(path: Path) -> int:
    """Return the number of repeated layers that the kernel table at `path` names."""
    layers = kernel_table(path).frame["layer"].dropna()
    return int(layers.max()) + 1 if len(layers) else 0


def kernels_a_step(path: Path) -> int:
    """Return about how many kernels a step of the kernel table at `path` launches."""
    frame = kernel_table(path).frame
    return int((frame["kind"] == "gpu_kernel").sum()) // max(int(frame["step"].nunique()), 1)


def kernel_table(path: Path) -> KernelTable:
    """The kernel table in a file."""
    from perfkit import readers

    return readers.tables_of(readers.read(path))["profile"]
