"""The pass under Nsight: the same steps once more in a process that `ncu` or `nsys` watches, into the run folder.

It comes after everything else and adds to it: where it fails, the run is what it would have been without.

    BACKEND/counters.ncu-rep    what ncu wrote; its counters are joined onto kernels.parquet
    BACKEND/nsight.nsys-rep     what nsys wrote, nsight.sqlite its export, nsight.parquet the kernel table
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perfkit.capture.nsight import messages, ncu, nsys
from perfkit.capture.nsight.joining import COUNTERS, Show, counted_in, join_onto, kernels_a_step
from perfkit.capture.nsight.process import ToolResult, follow
from perfkit.errors import PerfkitError, RunFailed, Unavailable
from perfkit.run.child import search_path
from perfkit.run.target import TargetOrder
from perfkit.run_folder import KERNELS, Settings

if TYPE_CHECKING:
    from perfkit.table import KernelTable

LIMIT_S = 1800.0
NSIGHT = f"nsight{nsys.SUFFIX}"
NSIGHT_TABLE = "nsight.parquet"


@dataclass(frozen=True, kw_only=True)
class NsightPlan:
    """The request of a run to Nsight: the tool, ncu's options, and the time limit of a backend."""

    tool: str
    ncu: ncu.NcuOptions = field(default_factory=lambda: ncu.NcuOptions(profiler_api=True))
    one_layer: bool = False
    limit_s: float = LIMIT_S


def impossible(plan: NsightPlan, settings: Settings) -> PerfkitError | None:
    """Why the tool can do nothing for this run, None when it can."""
    if settings.device == "cpu":
        return Unavailable(
            f"{plan.tool} profiles GPUs, and this workload runs on the CPU.", "Run it with --device cuda."
        )
    return messages.missing(plan.tool)


def add(
    plan: NsightPlan, settings: Settings, backend: str, folder: Path, show: Show, layers: Callable[[], int] = lambda: 0
) -> str:
    """Profile one backend under the tool and add what it saw to `folder`; return the name of the report kept there.

    `layers` says how many layers the whole model has, for `plan.one_layer`. Raises `PerfkitError`: nothing is changed
    then, but a report that holds something is kept.
    """
    if plan.tool == "nsys":
        return _add_timeline(plan, settings, backend, folder, show)
    repeated = layers() if plan.one_layer else 0
    if plan.one_layer and not repeated:
        raise RunFailed(
            "The trace does not show layers, so counters of one layer cannot be used for the others.",
            "Leave --one-layer out for this backend.",
        )
    report = folder / COUNTERS
    expected = 0 if plan.one_layer else kernels_a_step(folder / KERNELS)
    table = _profiled_by_ncu(plan, settings, backend, report, show, expected)
    show("joining the counters onto the trace")
    join_onto(folder / KERNELS, table, repeated)
    return report.name


def _profiled_by_ncu(
    plan: NsightPlan, settings: Settings, backend: str, report: Path, show: Show, expected: int
) -> KernelTable:
    progress = ncu.NcuProgress(show, expected)
    ended = _watched(
        plan, settings, backend, report, show, lambda p: ncu.command(plan.ncu, report, p), ncu.is_own, progress
    )
    show("reading the counters")
    return counted_in(report, ended, plan.ncu, plan.limit_s, progress)


def _add_timeline(plan: NsightPlan, settings: Settings, backend: str, folder: Path, show: Show) -> str:
    from perfkit.readers.nsys.capture import read_export

    options, report = nsys.NsysOptions(profiler_api=True), folder / NSIGHT
    ended = _watched(
        plan,
        settings,
        backend,
        report,
        show,
        lambda p: nsys.command(options, report, p),
        nsys.is_own,
        nsys.NsysProgress(show),
    )
    problem = nsys.failure(ended, report, options, plan.limit_s)
    if problem:
        raise problem
    show("reading the timeline")
    read_export(nsys.export_of(report)).write(folder / NSIGHT_TABLE)
    return report.name


def _watched(
    plan: NsightPlan,
    settings: Settings,
    backend: str,
    report: Path,
    show: Show,
    command: Callable[[Sequence[str]], list[str]],
    is_own: Callable[[str], bool],
    progress: Show,
) -> ToolResult:
    """Run the target under the tool; everything that is printed goes to a log next to the report."""
    show(f"starting {plan.tool}")
    order = TargetOrder(settings=settings, backend=backend, one_layer=plan.one_layer)
    with (
        tempfile.TemporaryDirectory(prefix="perfkit-target-") as scratch,
        open(report.with_name(f"{plan.tool}.txt"), "w", encoding="utf-8") as log,
    ):
        file = Path(scratch) / "order.json"
        file.write_bytes(msgspec.json.encode(order))
        environment = {**os.environ, **search_path(), "PERFKIT_NVTX": "1"}
        if settings.launch_blocking:
            environment["CUDA_LAUNCH_BLOCKING"] = "1"
        ended = follow(
            command([sys.executable, "-m", "perfkit.run.target", str(file)]),
            is_own,
            progress,
            lambda line: print(line, file=log),
            environment,
            plan.limit_s,
        )
        print("\n".join(ended.said), file=log)
    return ended
