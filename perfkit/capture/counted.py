"""A program a second time, under ncu: the counters of one of its steps, joined onto the trace of the first time.

The program finds its steps as in the first run, and ends when one is counted: what it would do then was done already.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.capture import launched
from perfkit.capture.agent.order import ORDER, Order, read_results, write
from perfkit.capture.agent.recording.counting import NO_GPU
from perfkit.capture.nsight import joining, messages, ncu
from perfkit.capture.nsight.process import follow
from perfkit.errors import PerfkitError, RunFailed
from perfkit.hardware import access
from perfkit.run_folder import KERNELS, BackendRun

LOG = "ncu.txt"


@dataclass(frozen=True, kw_only=True)
class CounterPlan:
    """The request to ncu, and the time limit of the second run (s; None: no limit)."""

    ncu: ncu.NcuOptions = field(default_factory=lambda: ncu.NcuOptions(profiler_api=True))
    limit_s: float | None = None


def impossible() -> PerfkitError | None:
    """Why ncu can do nothing here; None when it can."""
    problem = messages.missing(ncu.NAME)
    return problem or (access.no_gpu(f"--tool {ncu.NAME}") if access.closed_devices() else None)


def add(
    plan: CounterPlan,
    command: Sequence[str],
    order: Order,
    records: Sequence[BackendRun],
    folder: Path,
    show: joining.Show,
) -> None:
    """Run `command` under ncu, and join what it counted onto the kernel table of its one record in the run `folder`.

    Raises `PerfkitError`: the run is what it was then, but a report that holds something is kept.
    """
    record = records[0]
    if len(records) > 1:
        raise RunFailed(
            f"{len(records)} processes were recorded, and ncu's report does not say which of them a kernel is of.",
            "Capture one process.",
        )
    if record.unusable:
        raise RunFailed("There is no kernel table to join counters onto.")
    own = folder / record.name
    table = joining.kernel_table(own / KERNELS)
    if not (table.frame["kind"] == "gpu_kernel").any():
        raise RunFailed(NO_GPU)
    counted = _counted(plan, command, order, own, show)
    show("joining the counters onto the trace")
    joining.join_onto(own / KERNELS, counted, 0)
    record.nsight = joining.COUNTERS


def _counted(
    plan: CounterPlan, command: Sequence[str], order: Order, own: Path, show: joining.Show
) -> joining.KernelTable:
    show("the program runs a second time, under ncu, until one step is counted")
    report = own / joining.COUNTERS
    progress = ncu.NcuProgress(show, joining.kernels_a_step(own / KERNELS))
    with (
        tempfile.TemporaryDirectory(prefix="perfkit-program-") as scratch,
        open(own / LOG, "w", encoding="utf-8") as log,
    ):
        ordered = Path(scratch)
        write(ordered, ORDER, dataclasses.replace(order, steps=1, stop=True, memory=False, counters=True))
        ended = follow(
            ncu.command(plan.ncu, report, command),
            ncu.is_own,
            progress,
            lambda line: print(line, file=log),
            launched.environment(ordered / ORDER, os.environ),
            plan.limit_s,
        )
        print("\n".join(ended.said), file=log)
        why = next(
            (result.problem for _, result in read_results(ordered) if result.problem and not result.recorded),
            "",
        )
    try:
        return joining.counted_in(report, ended, plan.ncu, plan.limit_s, progress)
    except RunFailed as error:
        if why:
            raise RunFailed(f"Under ncu no step was counted. {why}") from error
        raise
