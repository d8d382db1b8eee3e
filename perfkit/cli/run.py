"""`perfkit run`: check, time and profile a workload on one or several backends, and report."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from perfkit.cli import options

MEASURE, NSIGHT, DATA = "Measurement", "Under Nsight", "Data and output"


def run(
    workload: Annotated[
        str, typer.Argument(help="A built-in workload (see `perfkit list`) or the path of your own file.")
    ],
    backend: Annotated[
        str, typer.Option(help="Backends, separated by commas; eager always runs as the reference.")
    ] = "eager",
    preset: options.Preset = None,
    variant: options.Variant = None,
    dim: options.Dimensions = None,
    config: options.Config = "",
    device: options.Device = "cpu",
    dtype: options.Dtype = "fp32",
    batch_size: options.BatchSize = None,
    sequence_length: options.SequenceLength = None,
    grad_accumulation: options.GradAccumulation = 1,
    recompute: options.Recompute = False,
    optimizer: options.Optimizer = "default",
    inference: options.Inference = False,
    compile_mode: options.CompileMode = "default",
    executors: options.Executors = "",
    kernels: options.KernelFolders = None,
    steps: Annotated[int, typer.Option(help="Timed steps.", rich_help_panel=MEASURE)] = 10,
    warmup: Annotated[
        int, typer.Option(help="Steps between the ten checked ones and the timed ones.", rich_help_panel=MEASURE)
    ] = 2,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.", rich_help_panel=MEASURE)] = 1337,
    profiler: Annotated[
        str,
        typer.Option(
            help="torch; ncu: also hardware counters; nsys: also a timeline; none: only timings.",
            rich_help_panel=MEASURE,
        ),
    ] = "torch",
    counter_set: Annotated[
        str,
        typer.Option(
            "--set",
            help="ncu: metrics (only what the report needs), basic, detailed, full or roofline.",
            rich_help_panel=NSIGHT,
        ),
    ] = "metrics",
    clock_control: Annotated[
        str,
        typer.Option(
            help="ncu: none (normal clocks), or base (fixed base clocks: slower but repeatable).",
            rich_help_panel=NSIGHT,
        ),
    ] = "none",
    cache_control: Annotated[
        str,
        typer.Option(
            help="ncu: all (flush caches before each replay: repeatable), or none (keep what the last replay left).",
            rich_help_panel=NSIGHT,
        ),
    ] = "all",
    one_layer: Annotated[
        bool,
        typer.Option(
            "--one-layer",
            help="ncu: profile a model with one layer and use its counters for all layers.",
            rich_help_panel=NSIGHT,
        ),
    ] = False,
    time_limit: Annotated[
        float,
        typer.Option(help="ncu, nsys: time limit for each backend under the tool, in seconds.", rich_help_panel=NSIGHT),
    ] = 1800.0,
    profile_memory: Annotated[
        bool, typer.Option("--profile-memory", help="Record allocations in the trace.", rich_help_panel=MEASURE)
    ] = False,
    launch_blocking: Annotated[
        bool,
        typer.Option(
            "--launch-blocking", help="Wait for each GPU kernel (CUDA_LAUNCH_BLOCKING=1).", rich_help_panel=MEASURE
        ),
    ] = False,
    skip_unavailable: Annotated[
        bool,
        typer.Option(
            "--skip-unavailable", help="Continue without backends that cannot run here.", rich_help_panel=MEASURE
        ),
    ] = False,
    weights: Annotated[
        str, typer.Option(help="random, a Hugging Face folder, or an llm.c checkpoint.", rich_help_panel=DATA)
    ] = "random",
    data: Annotated[
        str, typer.Option(help="synthetic, a text file or folder, or an llm.c token file.", rich_help_panel=DATA)
    ] = "synthetic",
    out: Annotated[
        Path | None, typer.Option(help="The run folder to write; default: a new one in runs/.", rich_help_panel=DATA)
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace an existing run at --out once the new one is complete.",
            rich_help_panel=DATA,
        ),
    ] = False,
    annotate: Annotated[
        bool,
        typer.Option(
            "--annotate",
            help="List generated programs (Thunder's traces, Inductor's code) with the cost of each line.",
            rich_help_panel=DATA,
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.", rich_help_panel=DATA)] = False,
) -> int:
    """Check, time and profile a workload, and write a report.

    Each backend runs in its own process. Its loss, outputs, gradients and the losses of ten training steps are compared
    with a reference in higher precision. Then the backends are timed in turns and profiled, with --profiler ncu or nsys
    once more under that tool. Exit code 1: a backend is wrong or failed, or the tool gave no result.
    """
    from perfkit.cli import nsight
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    chosen = loader.find(workload)
    settings = resolve_settings(
        chosen,
        preset=preset,
        variant=variant,
        dimensions=_dimensions(dim or []),
        device=device,
        dtype=dtype,
        batch_size=batch_size,
        sequence_length=sequence_length,
        grad_accumulation=grad_accumulation,
        recompute=recompute,
        optimizer=optimizer,
        training=not inference,
        compile_mode=compile_mode,
        executors=tuple(names(executors)),
        kernel_dirs=tuple(str(k) for k in kernels or ()),
        steps=steps,
        warmup=warmup,
        seed=seed,
        profiler=profiler,
        profile_memory=profile_memory,
        launch_blocking=launch_blocking,
        weights=weights,
        config=config,
        data=data,
    )
    chosen_backends = named(names(backend))
    unavailable = unavailable_of(chosen_backends, settings, skip_unavailable)
    folder = out or Path("runs") / f"{chosen.name}-{settings.preset}-{time.strftime('%Y%m%d-%H%M%S')}"
    plan = nsight.plan(settings, counter_set, clock_control, cache_control, one_layer, time_limit)
    return _capture_and_report(settings, chosen_backends, unavailable, folder, overwrite, as_json, plan, annotate)


def _dimensions(given: list[str]) -> dict[str, str]:
    """Name → value of `NAME=VALUE`; raises `UsageError` for anything else."""
    from perfkit.errors import UsageError

    pairs = [text.partition("=") for text in given]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise UsageError(f"--dim {name}{sign}{value} is not of the form NAME=VALUE.", "Write --dim layers=4.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def named(given: list[str]) -> dict[str, str]:
    """Backend name → what it was given as: its name, or a file. Raises `UsageError` for none, or an odd name."""
    from perfkit import backends
    from perfkit.errors import UsageError

    if not given:
        raise UsageError("No backend was named.", "Give --backend eager, or several separated by commas.")
    named = {backends.get(text).name: text for text in given}
    for name, text in named.items():
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UsageError(f"{text} calls its backend {name!r}.", "Name it with letters, digits, dots and dashes.")
    return named


def unavailable_of(named: dict[str, str], settings: Any, skip: bool) -> dict[str, str]:
    """Why each backend that cannot run here cannot, by name; raises `Unavailable` for the first unless `skip`."""
    from perfkit import backends
    from perfkit.errors import Unavailable

    reasons = {name: reason for name, text in named.items() if (reason := backends.get(text).unavailable(settings))}
    for name, reason in reasons.items():
        if not skip:
            raise Unavailable(f"Backend {name} cannot run here: {reason}", "--skip-unavailable goes on without it.")
    return reasons


def _capture_and_report(
    settings: Any,
    named: dict[str, str],
    unavailable: dict[str, str],
    folder: Path,
    overwrite: bool,
    as_json: bool,
    plan: Any = None,
    annotate: bool = False,
) -> int:
    from perfkit import readers
    from perfkit.analysis.report.analyse import analyse
    from perfkit.capture.session import Session
    from perfkit.cli import annotated, shown
    from perfkit.render import scalars

    with shown.progress() as progress:
        session = Session(settings, named, folder, unavailable, overwrite, progress, plan)
        session.run()
        progress("report", "analysing")
        source = readers.read_run(folder)
        listed = annotated.write(source, folder) if annotate else []
        result = analyse(source)
        written = shown.write_reports(result, source, folder)
        progress("report", "writing TensorBoard's event files")
        scalars.write_events(result, folder)
    shown.show(result, as_json)
    if not as_json:
        shown.say_where(written, folder, listed)
    if annotate and not listed:
        shown.complain(annotated.NONE)
    for problem in session.nsight_problems:
        shown.complain(f"Nothing of {settings.profiler}'s is in this report. {problem}")
    unusable = shown.complain_of_profiles(result)
    wrong = any(b.status in ("wrong", "failed") for b in result.backends)
    return 1 if session.nsight_problems or wrong or unusable else 0
