"""`perfkit capture`: profile any program by torch.profiler, Nsight Compute or Nsight Systems, and report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfkit.cli.parts import nsight, options, output, shown
from perfkit.cli.parts.output import Destination, json_of
from perfkit.errors import UsageError
from perfkit.workloads.choices import not_one_of

if TYPE_CHECKING:
    from perfkit.capture import counted
    from perfkit.capture.agent.order import Order
    from perfkit.capture.nsight import ncu, nsys

TORCH_TOOL, JOINED = "torch", "torch,ncu"
_ncu, _what, _torch = map(options.panel, (options.NCU, "What ncu and nsys capture", "torch only"))


def capture(
    context: typer.Context,
    program: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments.")],
    tool: Annotated[
        str,
        typer.Option(
            help="torch: a few steps by torch.profiler; ncu: hardware counters; nsys: a timeline of the whole program; "
            "torch,ncu: the program runs twice, and the counters of one step are joined onto the trace."
        ),
    ] = "torch",
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder (default: a new one in runs/); of ncu and nsys the report, default profile.ncu-rep or "
            "profile.nsys-rep."
        ),
    ] = None,
    backend: Annotated[str, _torch("What the run calls this side, such as eager or compiled.")] = "program",
    warmup: Annotated[int, _torch("Steps before the recorded ones.", min=1)] = 10,
    steps: Annotated[int, _torch("Steps to record.", min=1)] = 3,
    after: Annotated[float, _torch("Seconds after which the warm-up begins.", min=0)] = 0.0,
    memory: Annotated[bool, _torch("Record allocations too: who holds the memory.", "--memory")] = False,
    lines: options.Lines = None,
    stop: Annotated[bool, _torch("End the program when the steps are recorded.", "--stop")] = False,
    whole: Annotated[bool, _torch("Record the whole program as one step.", "--whole")] = False,
    counter_set: options.CounterSet = "metrics",
    clock_control: options.ClockControl = "none",
    cache_control: options.CacheControl = "all",
    kernel_name: Annotated[str, _ncu("Only kernels with this name; regex:EXPRESSION for a pattern.")] = "",
    launch_skip: Annotated[int, _ncu("Launches to skip at the beginning.", min=0)] = 0,
    launch_count: Annotated[int, _ncu("Maximum number of launches to profile; 0 for all.", min=0)] = 0,
    nvtx: Annotated[
        list[str] | None, _what("Only inside this NVTX range (repeatable with ncu), such as step or DOMAIN@step.")
    ] = None,
    profiler_api: Annotated[
        bool, _what("Only between cudaProfilerStart and cudaProfilerStop.", "--profiler-api")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds after which the program under ncu or nsys is stopped; default: no limit."),
    ] = None,
    costs: options.Costs = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing report at --out.")] = False,
    limit: options.Limit = None,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
    on: options.On = "",
    remote_python: options.RemotePython = "",
    no_report: options.NoReport = False,
) -> int:
    """Profile any program and report on the result: its steps, passes, modules, operators and kernels.

    The program needs no change; put two dashes before it: perfkit capture -- python train.py --lr 3e-4
    With torch its output, input and exit code stay its own, and the report goes to stderr.
    """
    from perfkit.capture import command
    from perfkit.cli.parts import program as torch
    from perfkit.cli.parts import reported
    from perfkit.cli.parts.nsight import changed

    options.use_costs(costs)
    of_ncu = {"set": counter_set, "clock_control": clock_control, "cache_control": cache_control,
              "kernel_name": kernel_name, "launch_skip": launch_skip, "launch_count": launch_count}  # fmt: skip
    tool = _checked_tool(tool)
    if tool in (TORCH_TOOL, JOINED):
        of_nsight = {"nvtx": nvtx, "profiler_api": profiler_api, "time_limit": time_limit is not None, "json": as_json}
        form = Destination(as_json=json_of(False, brief), limit=limit, on_stderr=True)
        order = _order(warmup, steps, after, memory, stop, whole, lines)
        odd = changed(of_ncu) | of_nsight
        plan = _counters(odd, counter_set, clock_control, cache_control, time_limit, whole) if tool == JOINED else None
        _check(backend, odd)
        if on or remote_python:
            return torch.capture_elsewhere(context, on, remote_python, program, out, overwrite, form)
        return torch.capture(program, order, out, backend, overwrite, form, plan, not no_report)
    if on or remote_python:
        raise UsageError("--on is for --tool torch.", f"Run {tool} there, then `perfkit report` of its file.")
    file = _file(out, tool, overwrite)
    chosen = _options(tool, time_limit, of_ncu, {"nvtx": tuple(nvtx or ()), "profiler_api": profiler_api})
    with shown.progress() as progress:
        done = command.capture(
            tool, chosen, program, file, lambda text: progress("capture", text), _to_stderr, time_limit
        )
    links = [("Profile", str(done.file)), ("Again", f"perfkit report {done.file} --out FOLDER")]
    output.put(
        reported.output_of(done.table, done.file), Destination(as_json=json_of(as_json, brief), limit=limit), links
    )
    if done.problem:
        shown.complain(f"{done.problem} The report above is of what was captured before.")
    return 1 if done.problem else 0


def _checked_tool(tool: str) -> str:
    """The tool; of two that are joined in one order. Raises `UsageError` for an unknown one."""
    from perfkit.capture.nsight import TOOLS

    if set(tool.split(",")) == set(JOINED.split(",")):
        return JOINED
    if tool not in (TORCH_TOOL, *TOOLS):
        raise not_one_of("--tool", tool, (TORCH_TOOL, *TOOLS, JOINED))
    return tool


def _counters(
    given: dict[str, Any], counter_set: str, clocks: str, caches: str, time_limit: float | None, whole: bool
) -> counted.CounterPlan:
    """Return the counters to collect for one step; takes out of `given` what it serves.

    Raises `UsageError` for odd values, and for ncu's options that choose kernels: the counters are of all kernels.
    """
    from perfkit.capture import counted
    from perfkit.capture.nsight import ncu

    if whole:
        raise UsageError("Counters are of one step, and --whole makes one of the program.", "Leave one of them out.")
    nsight.check(ncu.NAME, counter_set, clocks, caches, 1.0 if time_limit is None else time_limit)
    for name in ("set", "clock_control", "cache_control", "time_limit"):
        given[name] = False
    options = ncu.NcuOptions(set=counter_set, clock_control=clocks, cache_control=caches, profiler_api=True)
    return counted.CounterPlan(ncu=options, limit_s=time_limit)


def _order(warmup: int, steps: int, after: float, memory: bool, stop: bool, whole: bool, lines: bool | None) -> Order:
    """Return what to record. Raises `UsageError` where the whole program is one step and others are asked for."""
    from perfkit.capture.agent.order import STEPS, WARMUP, Order

    if not whole:
        return Order(warmup, steps, after, memory, stop, lines=lines)
    given = {"warmup": warmup != WARMUP, "steps": steps != STEPS, "after": after > 0, "stop": stop, "lines": lines}
    odd = next((name for name, value in given.items() if value), None)
    if odd:
        raise UsageError(f"--{odd} is about steps, and --whole makes one of the program.", "Leave one of them out.")
    return Order(memory=memory, steps=1, whole=True)


def _check(backend: str, of_nsight: dict[str, Any]) -> None:
    """Raise `UsageError` where an option of Nsight's was given, or for an odd name."""
    import re

    odd = next((name for name, value in of_nsight.items() if value), None)
    if odd:
        raise UsageError(f"--{odd.replace('_', '-')} needs --tool ncu or nsys.", "Leave it out, or choose the tool.")
    if not re.fullmatch(r"\w[\w.-]*", backend):
        raise UsageError(f"{backend!r} cannot name a backend.", "Use letters, digits, dots and dashes.")


def _file(out: Path | None, tool: str, overwrite: bool) -> Path:
    """The report's path with the suffix that the tool insists on. Raises `UsageError` for one that exists."""
    from perfkit.capture.nsight import ncu, nsys

    suffix = nsys.SUFFIX if tool == nsys.NAME else ncu.SUFFIX
    path = out or Path("profile")
    file = path if path.suffix == suffix else path.with_name(path.name + suffix)
    existing = [p for p in (file, nsys.export_of(file)) if p.exists() and (p == file or tool == nsys.NAME)]
    if existing and not overwrite:
        raise UsageError(f"{existing[0]} exists already.", "Choose another --out, or give --overwrite.")
    return file


def _options(
    tool: str, time_limit: float | None, counters: dict[str, Any], both: dict[str, Any]
) -> ncu.NcuOptions | nsys.NsysOptions:
    """The tool's options. Raises `UsageError` for invalid values, and for `counters` where nsys runs."""
    from perfkit.capture.nsight import ncu, nsys

    names = counters["set"], counters["clock_control"], counters["cache_control"]
    nsight.check(tool, *names, 1.0 if time_limit is None else time_limit)
    if tool == ncu.NAME:
        return ncu.NcuOptions(**counters, **both)
    nsight.belongs_to_ncu(**nsight.changed(counters))
    if len(both["nvtx"]) > 1:
        raise UsageError("nsys captures one NVTX range.", "Give --nvtx once.")
    return nsys.NsysOptions(**both)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
