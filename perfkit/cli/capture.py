"""`perfkit capture`: profile any program under Nsight Compute or Nsight Systems, and report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from perfkit.capture.command import Captured

NCU, WHAT = "ncu only", "What is captured"


def capture(
    program: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments.")],
    tool: Annotated[str, typer.Option(help="ncu: hardware counters; nsys: a timeline of the whole program.")] = "ncu",
    out: Annotated[
        Path | None, typer.Option(help="The report to make; profile.ncu-rep or profile.nsys-rep when left out.")
    ] = None,
    counter_set: Annotated[
        str,
        typer.Option(
            "--set",
            help="metrics (just what perfkit's report needs), basic, detailed, full or roofline.",
            rich_help_panel=NCU,
        ),
    ] = "metrics",
    clock_control: Annotated[
        str,
        typer.Option(
            help="none (the clocks that the program meets), or base (held there: slower, repeatable).",
            rich_help_panel=NCU,
        ),
    ] = "none",
    kernel_name: Annotated[
        str, typer.Option(help="Only kernels of this name; regex:EXPRESSION for a pattern.", rich_help_panel=NCU)
    ] = "",
    launch_skip: Annotated[
        int, typer.Option(min=0, help="Launches to leave out at the beginning.", rich_help_panel=NCU)
    ] = 0,
    launch_count: Annotated[
        int, typer.Option(min=0, help="Launches to profile at most; 0 for all.", rich_help_panel=NCU)
    ] = 0,
    nvtx: Annotated[
        list[str] | None,
        typer.Option(
            help="Only inside this NVTX range (repeatable with ncu), such as step or DOMAIN@step.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    profiler_api: Annotated[
        bool,
        typer.Option(
            "--profiler-api", help="Only between cudaProfilerStart and cudaProfilerStop.", rich_help_panel=WHAT
        ),
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which the program is ended; none when left out.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a report that is already at --out.")] = False,
    limit: Annotated[int | None, typer.Option(help="Rows of each table in the terminal; 0 for all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of text.")] = False,
) -> int:
    """Profile any program under ncu or nsys, read the result and report on it.

    What the program prints goes to stderr. Put two dashes before it: perfkit capture -- python train.py --lr 3e-4
    """
    from perfkit.analysis.report import analyse_table
    from perfkit.cli import shown

    file = _file(out, tool, overwrite)
    _check(tool, counter_set, clock_control, time_limit, kernel_name, launch_skip, launch_count, nvtx or [])
    with shown.progress() as progress:
        done = _capture(
            tool,
            program,
            file,
            time_limit,
            lambda text: progress("capture", text),
            counter_set=counter_set,
            clock_control=clock_control,
            kernel_name=kernel_name,
            launch_skip=launch_skip,
            launch_count=launch_count,
            nvtx=tuple(nvtx or ()),
            profiler_api=profiler_api,
        )
    shown.show(analyse_table(done.table, None, done.file), as_json, limit)
    if not as_json:
        print(f"Profile:     {done.file}\nAgain:       perfkit report {done.file} --out FOLDER")
    if done.problem:
        shown.complain(f"{done.problem} The report above is of what was captured before.")
    return 1 if done.problem else 0


def _file(out: Path | None, tool: str, overwrite: bool) -> Path:
    """The report's path with the suffix that the tool insists on. Raises `UsageError` for one that exists."""
    from perfkit.capture.nsight import ncu, nsys
    from perfkit.errors import UsageError

    suffix = nsys.SUFFIX if tool == nsys.NAME else ncu.SUFFIX
    path = out or Path("profile")
    file = path if path.suffix == suffix else path.with_name(path.name + suffix)
    existing = [p for p in (file, nsys.export_of(file)) if p.exists() and (p == file or tool == nsys.NAME)]
    if existing and not overwrite:
        raise UsageError(f"{existing[0]} exists already.", "Choose another --out, or give --overwrite.")
    return file


def _check(
    tool: str,
    counter_set: str,
    clock_control: str,
    time_limit: float | None,
    kernel_name: str,
    launch_skip: int,
    launch_count: int,
    nvtx: list[str],
) -> None:
    from perfkit.cli import nsight
    from perfkit.errors import UsageError

    nsight.check(tool, counter_set, clock_control, 1.0 if time_limit is None else time_limit)
    if tool == "nsys":
        odd = {"kernel-name": kernel_name, "launch-skip": launch_skip, "launch-count": launch_count}
        nsight.belongs_to_ncu(**odd, set=counter_set != "metrics", clock_control=clock_control != "none")
        if len(nvtx) > 1:
            raise UsageError("nsys captures one NVTX range.", "Give --nvtx once.")


def _capture(tool: str, program: list[str], file: Path, time_limit: float | None, show, **given) -> Captured:  # type: ignore[no-untyped-def]
    from perfkit.capture import command
    from perfkit.capture.nsight import ncu, nsys

    options: ncu.Options | nsys.Options
    if tool == nsys.NAME:
        options = nsys.Options(profiler_api=given["profiler_api"], nvtx=given["nvtx"])
    else:
        options = ncu.Options(set=given.pop("counter_set"), **given)
    return command.capture(tool, options, program, file, show, _to_stderr, time_limit)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
