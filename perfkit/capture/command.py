"""Profiling any program under `ncu` or `nsys` into a report that perfkit reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.capture.launched import check as check_program
from perfkit.capture.nsight import messages, ncu, nsys
from perfkit.capture.nsight.joining import lost_kernels
from perfkit.capture.nsight.process import follow
from perfkit.errors import PerfkitError, RunFailed, UsageError
from perfkit.hardware import access

if TYPE_CHECKING:
    from perfkit.table import KernelTable

Show = Callable[[str], None]


@dataclass(frozen=True)
class Captured:
    """A capture that can be reported on: the file to read, its table, and what went wrong all the same."""

    file: Path
    table: KernelTable
    problem: PerfkitError | None = None


def capture(
    tool: str,
    options: ncu.NcuOptions | nsys.NsysOptions,
    program: Sequence[str],
    out: Path,
    show: Show,
    output: Show,
    limit_s: float | None = None,
) -> Captured:
    """Profile `program` into `out` (with the tool's own suffix) and read the result.

    `show` gets the progress, `output` each line that the program prints. Raises `UsageError` for a program or folder
    that is missing, `Unavailable` where the tool cannot work here, `RunFailed` when nothing came of it.
    """
    problem = messages.missing(tool)
    if problem:
        raise problem
    check_program(program)
    _check_folder(out)
    if isinstance(options, ncu.NcuOptions) and access.closed_devices():
        raise access.no_gpu(f"--tool {tool}")
    show(f"starting {tool}")
    if isinstance(options, ncu.NcuOptions):
        return _by_ncu(options, program, out, show, output, limit_s)
    return _by_nsys(options, program, out, show, output, limit_s)


def _by_ncu(
    options: ncu.NcuOptions, program: Sequence[str], out: Path, show: Show, output: Show, limit_s: float | None
) -> Captured:
    from perfkit import readers
    from perfkit.readers.formats.ncu import FORMAT

    progress = ncu.NcuProgress(show)
    with _unfinished(out) as report:
        ended = follow(ncu.command(options, report, program), ncu.is_own, progress, output, None, limit_s)
        problem = ncu.failure(ended, report, options, limit_s)
        if problem and not (report.is_file() and isinstance(problem, RunFailed)):
            raise _renamed(problem, report, out)
        show("reading the report")
        try:
            table = FORMAT.described(readers.tables_of(readers.read(report))["profile"], out)
        except PerfkitError as error:
            raise _renamed(problem or error, report, out) from error
        report.replace(out)
    table.source["path"] = str(out)
    lost = lost_kernels(progress.kernels, len(table))
    if lost:
        table.warnings.insert(0, lost)
        problem = problem or RunFailed(lost, "Capture it again.")
    return Captured(out, table, problem)


def _by_nsys(
    options: nsys.NsysOptions, program: Sequence[str], out: Path, show: Show, output: Show, limit_s: float | None
) -> Captured:
    from perfkit.readers.formats.nsys import FORMAT
    from perfkit.readers.nsys.capture import read_export

    with _unfinished(out) as report:
        command = nsys.command(options, report, program)
        ended = follow(command, nsys.is_own, nsys.NsysProgress(show), output, nsys.environment(options), limit_s)
        problem = nsys.failure(ended, report, options, limit_s)
        export = nsys.export_of(report)
        for kept in (report, report.with_suffix(nsys.RAW)):
            if kept.is_file():  # worth having even where it cannot be read here
                kept.replace(out.with_suffix(kept.suffix))
        if problem and not export.is_file():
            raise _renamed(problem, report, out)
        show("reading the export")
        try:
            table = FORMAT.described(read_export(export), nsys.export_of(out))
        except PerfkitError as error:
            raise _renamed(problem or error, report, out) from error
        export.replace(nsys.export_of(out))
    table.source["path"] = str(nsys.export_of(out))
    return Captured(nsys.export_of(out), table, problem)


@contextlib.contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """Give a temporary name in the folder of `out` for unfinished files; files with it or its suffixes are removed at
    the end.

    Without other dots than that of the suffix: the tools might take what follows one for a suffix of theirs.
    """
    partial = out.with_name(f"{out.stem.replace('.', '-')}-partial-{os.getpid()}{out.suffix}")
    try:
        yield partial
    finally:
        for suffix in (out.suffix, ".sqlite", nsys.RAW):
            partial.with_suffix(suffix).unlink(missing_ok=True)


def _renamed(problem: PerfkitError, partial: Path, out: Path) -> PerfkitError:
    """Return the problem with the final names of the files in its message and hint."""
    message, hint = (
        text.replace(str(partial.with_suffix("")), str(out.with_suffix(""))) for text in (problem.message, problem.hint)
    )
    return type(problem)(message, hint)


def _check_folder(out: Path) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder, and the report is a file.", "Choose another --out.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out.parent} cannot be made: {error.strerror}.", "Choose another --out.") from error
    if not os.access(out.parent, os.W_OK | os.X_OK):  # before the program runs, not hours later
        raise UsageError(f"This user may not write into {out.parent}.", "Choose another --out.")
