"""`perfkit trace`: one Chrome trace of a run or profile, with perfkit's facts on each kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ENDING = ".pt.trace.json.gz"  # the one by which TensorBoard's profiler plugin finds traces
_PROFILE_ENDINGS = (".gz", ".json", ".trace", ".pt", ".parquet", ".ncu-rep", ".csv", ".sqlite", ".nsys-rep")


def trace(
    path: Annotated[Path, typer.Argument(help="A run folder or a profile.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write, compressed if its name ends in .gz; default: perfkit.pt.trace.json.gz in"
            " the run folder, or NAME.perfkit.pt.trace.json.gz here."
        ),
    ] = None,
) -> None:
    """Write a timeline for Perfetto (ui.perfetto.dev), chrome://tracing or TensorBoard.

    It shows steps, passes and kernels of every backend. Each kernel has its place in the model, bytes, FLOP, distance
    to its roof, and the source of each number.
    """
    from perfkit import readers
    from perfkit.analysis.timeline.lanes import timelines
    from perfkit.errors import InputError
    from perfkit.render import trace as chrome

    target = _target(path, out)
    made = timelines(readers.read(path), _stem(path))
    if not any(len(timeline) for timeline in made):
        raise InputError(
            f"{path} holds no kernels with a duration, so there is no timeline.",
            "Capture it again: `perfkit run` with its profiler, or ncu with `--metrics gpu__time_duration.sum` added.",
        )
    chrome.write(target, made, str(path))
    _say(target, {t.name: (len(t), t.measured) for t in made})


def _target(path: Path, out: Path | None) -> Path:
    """The file to write: `out`, or the usual name. Raises `UsageError` for a folder, or the profile itself."""
    from perfkit.cli import shown
    from perfkit.errors import UsageError
    from perfkit.render import safe_name
    from perfkit.run_folder import MANIFEST

    if out is None:
        if path.is_dir() or path.name == MANIFEST:
            return (path if path.is_dir() else path.parent) / f"perfkit{ENDING}"
        return Path(f"{safe_name(_stem(path))}.perfkit{ENDING}")
    if out.is_dir():
        raise UsageError(f"{out} is a folder.", "Give --out the name of the file to write.")
    if path.exists() and out.exists() and out.samefile(path):
        raise UsageError(f"{out} is the profile that is read.", "Choose another --out.")
    shown.make_folder(out.parent)
    return out


def _stem(path: Path) -> str:
    """The file's name without the endings that profiles have."""
    name = path.name
    while name.rpartition(".")[0] and f".{name.rpartition('.')[2]}" in _PROFILE_ENDINGS:
        name = name.rpartition(".")[0]
    return name or "profile"


def _say(target: Path, drawn: dict[str, tuple[int, bool]]) -> None:
    from rich.console import Console

    from perfkit.render.cells import clean

    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    for name, (rows, measured) in drawn.items():
        laid = "" if measured else ", laid end to end: the profile has no start times"
        console.print(f"{clean(name)}: {rows:,} {'row' if rows == 1 else 'rows'}{laid}")
    console.print(f"Trace: {target}")
    console.print("Open it in https://ui.perfetto.dev or chrome://tracing; nothing is uploaded.")
