"""`perfkit run`: check, time and profile a workload on one or several backends, and report."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfkit.cli.parts import nsight, options, shown
from perfkit.cli.parts.output import Json, json_of
from perfkit.run_folder import usual_folder
from perfkit.settings import DATA, MEASURE, without

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perfkit.errors import PerfkitError
    from perfkit.run.ranks.meeting import Meeting
    from perfkit.run_folder import Settings

    Progress = Callable[[str, str], None]

_ncu, _measured, _data = map(options.panel, (options.NCU, MEASURE, DATA))


@options.from_settings(
    without(()), lists=("batch_size",), helps={"batch_size": "B, samples per batch; of several a run each."}
)
def run(
    context: typer.Context,
    workload: Annotated[
        str, typer.Argument(help="A built-in workload (see `perfkit list`) or the path of your own file.")
    ],
    backend: Annotated[
        str, typer.Option(help="Backends, separated by commas; eager always runs as the reference.")
    ] = "eager",
    *,
    given: options.Given,
    prompt: options.Prompt = "",
    node_rank: options.HostNumber = 0,
    rdzv_endpoint: options.Endpoint = "",
    counter_set: options.CounterSet = "metrics",
    clock_control: options.ClockControl = "none",
    cache_control: options.CacheControl = "all",
    one_layer: Annotated[
        bool, _ncu("Profile a model with one layer and use its counters for all layers.", "--one-layer")
    ] = False,
    time_limit: Annotated[float, _measured("Time limit for each backend under ncu or nsys, in seconds.")] = 1800.0,
    skip_unavailable: options.SkipUnavailable = False,
    costs: options.Costs = None,
    out: Annotated[Path | None, _data("The run folder to write; default: a new one in runs/.")] = None,
    overwrite: Annotated[
        bool, _data("Replace an existing run at --out once the new one is complete.", "--overwrite")
    ] = False,
    annotate: Annotated[
        bool,
        _data("List generated programs (Thunder's traces, Inductor's code) with the cost of each line.", "--annotate"),
    ] = False,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
    on: options.On = "",
    remote_python: options.RemotePython = "",
    no_report: options.NoReport = False,
) -> int:
    """Check, time and profile a workload, and write a report.

    Each backend runs in its own process. Its loss, outputs, gradients and the losses of ten training steps are compared
    with a reference in higher precision. Then the backends are timed in turns and profiled, with --profiler ncu or nsys
    once more under that tool. Exit code 1: a backend is wrong or failed, or the tool gave no result.
    """
    from perfkit.cli.parts.reported import RunReport, in_run
    from perfkit.run.ranks import hosts
    from perfkit.run.ranks.meeting import meeting_of
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    options.use_costs(costs)
    answer = json_of(as_json, brief)
    sizes, profiler = options.whole_numbers("--batch-size", given.pop("batch_size")), given["profiler"]
    if len(sizes) > 1:
        alone = {"on": on, "nnodes": given["hosts"] > 1, "annotate": annotate, "overwrite": overwrite}
        options.alone(alone | {f"profiler {profiler}": profiler in ("ncu", "nsys")})
    if on or remote_python:
        folder = out or usual_folder(Path(workload).stem)
        return _elsewhere(context, on, remote_python, folder, overwrite, answer, annotate)

    chosen = loader.find(workload)
    given["sequence_length"] = options.prompt_length(prompt, given["generate"], given["sequence_length"])
    given["training"] &= not given["generate"]
    resolve = partial(resolve_settings, chosen, **given)
    settings = resolve(batch_size=sizes[0] if sizes else None)
    chosen_backends = options.named(options.names(backend))
    unavailable = options.unavailable_of(chosen_backends, settings, skip_unavailable)
    meeting = meeting_of(settings, node_rank, rdzv_endpoint)
    if meeting and meeting.number:
        print(f"Host {meeting.number} of {settings.hosts} waits for host 0 at {meeting.host}.", file=sys.stderr)
        hosts.serve(settings, meeting, [*chosen_backends], [*unavailable])
        return 0
    folder = out or usual_folder(f"{chosen.name}-{settings.preset}")
    if len(sizes) > 1:
        each = [resolve(batch_size=size) for size in sizes]
        return _of_sizes(each, chosen_backends, unavailable, folder, answer)
    plan = nsight.plan(settings, counter_set, clock_control, cache_control, one_layer, time_limit)
    with shown.progress() as progress:
        problems = _record(settings, chosen_backends, unavailable, folder, overwrite, plan, progress, meeting)
        made = None if no_report else RunReport(folder, in_run(folder, answer), annotate, progress)
    code = made.show() if made else 0
    for problem in problems:
        shown.complain(f"Nothing of {settings.profiler}'s is in this report. {problem}")
    return 1 if problems else code


def _of_sizes(
    each: Sequence[Settings], named: dict[str, str], unavailable: dict[str, str], folder: Path, as_json: Json | None
) -> int:
    """A run of each batch size below `folder`, and one page of them."""
    from perfkit.cli.parts import sweeps
    from perfkit.run.sweep import SweepCell, folder_name

    values = [{"batch_size": str(settings.batch_size)} for settings in each]
    cells = [SweepCell(one, settings, folder / folder_name(one)) for one, settings in zip(values, each, strict=True)]
    axis = {"batch_size": [one["batch_size"] for one in values]}
    return sweeps.run(axis, cells, named, unavailable, folder, as_json)


def _record(
    settings: Any,
    named: dict[str, str],
    unavailable: dict[str, str],
    folder: Path,
    overwrite: bool,
    plan: Any,
    progress: Progress,
    meeting: Meeting | None,
) -> list[PerfkitError]:
    """Make the run folder; return what Nsight was asked for and did not give."""
    from perfkit.run.session import Session

    session = Session(settings, named, folder, unavailable, overwrite, progress, plan, meeting)
    session.run()
    return session.nsight_problems


def _elsewhere(
    context: typer.Context, host: str, python: str, folder: Path, overwrite: bool, as_json: Json | None, annotate: bool
) -> int:
    """Record on another machine, and report here."""
    from perfkit.cli.parts import elsewhere
    from perfkit.cli.parts.reported import RunReport, in_run

    code, brought = elsewhere.do(context, host, python, folder, overwrite)
    if not brought:
        return code
    with shown.progress() as progress:
        made = RunReport(folder, in_run(folder, as_json), annotate, progress)
    return made.show() or code
