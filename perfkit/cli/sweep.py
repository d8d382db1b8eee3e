"""`perfkit sweep`: runs of several sizes, and how cost grows with size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfkit.cli.parts import options, sweeps
from perfkit.cli.parts.output import json_of
from perfkit.errors import UsageError
from perfkit.settings import DATA, fields

if TYPE_CHECKING:
    from perfkit.run.sweep import SweepCell

AXES = "What is varied"
VARIED = ("preset", "variant", "dtype", "batch_size", "sequence_length", "ranks", "parallel", "steps")
ALIKE = (
    "generate", "device", "warmup", "seed", "profiler", "training", "config", "allocator", "cuda_graphs", "weights",
    "data",
)  # fmt: skip
HELPS = {
    "parallel": "How they do: ddp, fsdp, zero1.",
    "profiler": "torch, or none for timings only.",
    "warmup": "Steps before the timed ones.",
}
_axis, _data = map(options.panel, (AXES, DATA))


@options.from_settings((*VARIED, *ALIKE), lists=VARIED, panels=dict.fromkeys(VARIED, AXES), helps=HELPS)
def sweep(
    workload: Annotated[str, typer.Argument(help="A built-in workload or the path of your own file.")],
    backend: Annotated[str, typer.Option(help="Backends, separated by commas.")] = "eager",
    *,
    given: options.Given,
    prompt: Annotated[str, _axis(f"Tokens of the prompt for --generate. {options.LIST}")] = "",
    dim: Annotated[list[str] | None, _axis("Dimensions of the preset: width=64,128,256 (repeatable).")] = None,
    skip_unavailable: options.SkipUnavailable = False,
    out: Annotated[Path | None, _data("Folder of the sweep; default: runs/sweep-NAME.")] = None,
    as_json: options.AsJson = False,
) -> int:
    """Run a workload over a grid of sizes, and plot time, throughput and efficiency against each size.

    Every combination is a complete run (`perfkit run`) in its own folder. Existing runs are not repeated, so a stopped
    sweep continues where it was. Exit code 1: a backend is wrong or failed in one of the runs.
    """
    from perfkit.workloads import loader

    if given["profiler"] not in ("torch", "none"):
        found = given["profiler"]
        raise UsageError(f"--profiler {found} is not for a sweep.", "Use torch or none; `perfkit run` has the rest.")
    lengths = [options.prompt_length(one, given["generate"], None) for one in _list(prompt)]
    if lengths and given["sequence_length"]:
        raise UsageError("--prompt and --sequence-length are the same here.", "Leave one of them out.")
    given["sequence_length"] = ",".join(map(str, lengths)) or given["sequence_length"]
    given["training"] &= not given["generate"]
    axes = _axes(dim or [], {name: given.pop(name) for name in VARIED})
    folder = out or Path("runs") / f"sweep-{loader.find(workload).name}"
    cells = _cells(workload, axes, given, folder)
    named = options.named(options.names(backend))
    unavailable: dict[str, str] = {}
    for cell in cells:  # what a backend can do may depend on what is varied
        unavailable |= options.unavailable_of(named, cell.settings, skip_unavailable)
    return sweeps.run(
        {name: values for name, values in axes.items() if len(values) > 1},
        cells,
        named,
        unavailable,
        folder,
        json_of(as_json),
    )


def _axes(dim: Sequence[str], given: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what is given, by name, each with its values; dimensions by their own names.

    Raises `UsageError` for a dimension without values.
    """
    axes = {name: _list(text) for name, text in given.items() if text}
    for text in dim:
        name, _, values = text.partition("=")
        if not name.strip() or not _list(values):
            raise UsageError(f"--dim {text} is not of the form NAME=VALUES.", "Write --dim width=64,128.")
        axes[name.strip()] = _list(values)
    return axes


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(options.names(text)))


def _cells(workload: str, axes: dict[str, list[str]], fixed: dict[str, Any], folder: Path) -> list[SweepCell]:
    """A cell for each combination, its settings checked. Raises what `resolve_settings` raises."""
    from perfkit.run.sweep import SweepCell, combinations, folder_name
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    chosen = loader.find(workload)
    known = fields()
    cells = []
    for values in combinations(axes):
        options = {n: v if known[n].type is str else _whole(v) for n, v in values.items() if n in VARIED}
        if options.get("ranks") == 1:
            options.pop("parallel", None)  # one process is the same by any way
        dimensions = {name: value for name, value in values.items() if name not in VARIED}
        settings = resolve_settings(chosen, dimensions=dimensions, **options, **fixed)
        shown = {name: value for name, value in values.items() if len(axes[name]) > 1}
        cells.append(SweepCell(shown, settings, folder / folder_name(shown)))
    return cells


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{text!r} is not a whole number.", "Write sizes as in --batch-size 32,64.")
    return int(text)
