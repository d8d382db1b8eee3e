"""`perfkit sweep`: runs of several sizes, and how cost grows with size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfkit.cli.parts import options, sweeps
from perfkit.cli.parts.options import DATA, MEASURE
from perfkit.cli.parts.output import json_of

if TYPE_CHECKING:
    from perfkit.capture.sweep import Cell

AXES = "What is varied"
_LIST = "one or several, separated by commas"


def sweep(
    workload: Annotated[str, typer.Argument(help="A built-in workload or the path of your own file.")],
    backend: Annotated[str, typer.Option(help="Backends, separated by commas.")] = "eager",
    preset: Annotated[str, typer.Option(help=f"Presets: {_LIST}.", rich_help_panel=AXES)] = "",
    variant: Annotated[str, typer.Option(help=f"Variants: {_LIST}.", rich_help_panel=AXES)] = "",
    dtype: Annotated[str, typer.Option(help=f"Precisions: {_LIST}.", rich_help_panel=AXES)] = "",
    batch_size: Annotated[
        str, typer.Option("--batch-size", "-B", help=f"Batch sizes: {_LIST}.", rich_help_panel=AXES)
    ] = "",
    sequence_length: Annotated[
        str, typer.Option("--sequence-length", "-T", help=f"Sequence lengths: {_LIST}.", rich_help_panel=AXES)
    ] = "",
    generate: options.Generate = 0,
    prompt: Annotated[
        str, typer.Option(help=f"Tokens of the prompt for --generate: {_LIST}.", rich_help_panel=AXES)
    ] = "",
    dim: Annotated[
        list[str] | None,
        typer.Option(help="Dimensions of the preset: width=64,128,256 (repeatable).", rich_help_panel=AXES),
    ] = None,
    ranks: Annotated[str, typer.Option(help=f"Processes that train together: {_LIST}.", rich_help_panel=AXES)] = "",
    parallel: Annotated[str, typer.Option(help=f"How they do (ddp, fsdp, zero1): {_LIST}.", rich_help_panel=AXES)] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.", rich_help_panel=MEASURE)] = "cpu",
    steps: Annotated[str, typer.Option(help=f"Timed steps of each run: {_LIST}.", rich_help_panel=AXES)] = "10",
    warmup: Annotated[int, typer.Option(help="Steps before the timed ones.", rich_help_panel=MEASURE)] = 2,
    seed: options.Seed = 1337,
    profiler: Annotated[str, typer.Option(help="torch, or none for timings only.", rich_help_panel=MEASURE)] = "torch",
    inference: Annotated[bool, typer.Option("--inference", help="Forward only.", rich_help_panel=MEASURE)] = False,
    skip_unavailable: options.SkipUnavailable = False,
    config: options.Config = "",
    allocator: options.Allocator = "default",
    cuda_graphs: options.CudaGraphs = "default",
    weights: options.Weights = "random",
    data: options.Data = "synthetic",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep; default: runs/sweep-NAME.", rich_help_panel=DATA)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=DATA)] = False,
) -> int:
    """Run a workload over a grid of sizes, and plot time, throughput and efficiency against each size.

    Every combination is a complete run (`perfkit run`) in its own folder. Existing runs are not repeated, so a stopped
    sweep continues where it was. Exit code 1: a backend is wrong or failed in one of the runs.
    """
    from perfkit.errors import UsageError
    from perfkit.workloads import loader

    if profiler not in ("torch", "none"):
        raise UsageError(f"--profiler {profiler} is not for a sweep.", "Use torch or none; `perfkit run` has the rest.")
    given = {"preset": preset, "variant": variant, "dtype": dtype}
    lengths = [options.prompt_length(one, generate, None) for one in _list(prompt)]
    if lengths and sequence_length:
        raise UsageError("--prompt and --sequence-length are the same here.", "Leave one of them out.")
    sequence_length = ",".join(map(str, lengths)) or sequence_length
    given |= {"batch_size": batch_size, "sequence_length": sequence_length, "steps": steps}
    given |= {"ranks": ranks, "parallel": parallel}
    axes = _axes(dim or [], given)
    folder = out or Path("runs") / f"sweep-{loader.find(workload).name}"
    fixed = {
        "device": device, "warmup": warmup, "seed": seed, "profiler": profiler,
        "training": not (inference or generate), "generate": generate, "weights": weights, "config": config,
        "data": data, "allocator": allocator, "cuda_graphs": cuda_graphs,
    }  # fmt: skip
    cells = _cells(workload, axes, fixed, folder)
    named = options.named(options.names(backend))
    unavailable: dict[str, str] = {}
    for cell in cells:  # what a backend can do may depend on what is varied
        unavailable |= options.unavailable_of(named, cell.settings, skip_unavailable)
    return sweeps.run(_varied(axes), cells, named, unavailable, folder, json_of(as_json))


def _axes(dim: Sequence[str], given: Mapping[str, str]) -> dict[str, list[str]]:
    """What is given, by name, each with its values; dimensions by their own names.

    Raises `UsageError` for a dimension without values.
    """
    from perfkit.errors import UsageError

    axes = {name: _list(text) for name, text in given.items() if text}
    for text in dim:
        name, _, values = text.partition("=")
        if not name.strip() or not _list(values):
            raise UsageError(f"--dim {text} is not of the form NAME=VALUES.", "Write --dim width=64,128.")
        axes[name.strip()] = _list(values)
    return axes


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _varied(axes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: values for name, values in axes.items() if len(values) > 1}


def _cells(workload: str, axes: dict[str, list[str]], fixed: dict[str, Any], folder: Path) -> list[Cell]:
    """A cell for each combination, its settings checked. Raises what `resolve_settings` raises."""
    from perfkit.capture.sweep import Cell, combinations, folder_name
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    chosen = loader.find(workload)
    own: dict[str, Callable[[str], Any]] = {
        "preset": str,
        "variant": str,
        "dtype": str,
        "batch_size": _whole,
        "sequence_length": _whole,
        "steps": _whole,
        "ranks": _whole,
        "parallel": str,
    }
    cells = []
    for values in combinations(axes):
        options = {name: convert(values[name]) for name, convert in own.items() if name in values}
        if options.get("ranks") == 1:
            options.pop("parallel", None)  # one process is the same by any way
        dimensions = {name: value for name, value in values.items() if name not in own}
        settings = resolve_settings(chosen, dimensions=dimensions, **options, **fixed)
        shown = {name: value for name, value in values.items() if len(axes[name]) > 1}
        cells.append(Cell(shown, settings, folder / folder_name(shown)))
    return cells


def _whole(text: str) -> int:
    from perfkit.errors import UsageError

    if not text.isdecimal():
        raise UsageError(f"{text!r} is not a whole number.", "Write sizes as in --batch-size 32,64.")
    return int(text)
