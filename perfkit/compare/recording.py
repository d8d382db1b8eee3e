"""A measured comparison as a folder: every side checked as a run, then all measured in turns (`launching`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import perfkit
from perfkit.capture.folders import made
from perfkit.compare.launching import SideProgram, measure
from perfkit.compare.record import MeasuredSide, Measurement, is_measurement, write_measurement
from perfkit.compare.stopping import StoppingRule
from perfkit.errors import UsageError
from perfkit.run.session import Session
from perfkit.run_folder import read_manifest

Progress = Callable[[str, str], None]
Sides = Sequence[tuple[SideProgram, str, dict[str, str]]]


def measure_into(
    folder: Path, sides: Sides, plan: StoppingRule, check: bool, overwrite: bool, progress: Progress
) -> None:
    """Measure `sides`, each a program with the name of its run folder and what is unavailable there, into `folder`.

    With `check` every run folder is made first: results against the reference, one timing, one profile; without, sides
    have no run folder, and their results are not checked. Raises `UsageError` when `folder` holds something that
    may not be replaced.
    """
    from perfkit import backends

    with _new_folder(folder, overwrite) as partial:
        runs = dict.fromkeys(name for _, name, _ in sides if name) if check else {}
        for name in runs:
            members = [(program, unavailable) for program, run, unavailable in sides if run == name]
            named = {backends.get(p.backend).name: p.backend for p, _ in members}
            say = _named(progress, name) if len(runs) > 1 else progress
            Session(members[0][0].settings, named, partial / name, dict(members[0][1]), progress=say).run()
        programs = [program for program, _, _ in sides]
        plan = plan.for_sides(len(programs))
        peaks = [_peak(partial / run, backends.get(p.backend).name) if run in runs else None for p, run, _ in sides]
        launches, stopped = measure(programs, partial, plan, progress, peaks)
        write_measurement(
            partial,
            Measurement(
                perfkit=perfkit.__version__,
                created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                command=["perfkit", *sys.argv[1:]],
                sides=[
                    MeasuredSide(label=p.label, run=run if run in runs else "", backend=backends.get(p.backend).name)
                    for p, run, _ in sides
                ],
                launches=launches,
                stopped=stopped,
                share=plan.share(len(launches)),
            ),
        )


def _peak(run: Path, backend: str) -> float | None:
    """The peak of memory in bytes that a checked run found for a backend."""
    record = read_manifest(run).backend(backend)
    return record.peak_memory_bytes if record else None


def _named(progress: Progress, run: str) -> Progress:
    """The progress of one of several checked runs."""
    return lambda who, what: progress(f"{run}, {who}", what)


def _new_folder(folder: Path, overwrite: bool) -> AbstractContextManager[Path]:
    """Give a temporary folder that takes the place of `folder` at the end. Raises `UsageError` where it may not."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        if not is_measurement(folder):
            raise UsageError(f"{folder} exists and is not a measured comparison.", "Choose another --out.")
        if not overwrite:
            raise UsageError(f"{folder} holds a comparison already.", "Choose another --out, or give --overwrite.")
    return made(folder)
