"""`perfkit trace`: one Chrome trace of a run, a profile or several ranks, with perfkit's facts on each kernel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.parts.output import make_folder
from perfkit.errors import InputError, UsageError
from perfkit.render.output import safe_name
from perfkit.run_folder import MANIFEST

if TYPE_CHECKING:
    from perfkit.ranks.drawing import Drawing

ENDING = ".pt.trace.json.gz"  # the one by which TensorBoard's profiler plugin finds traces


def trace(
    paths: Annotated[
        list[Path], typer.Argument(help="A run folder or a profile; or the traces of several ranks, or their folder.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file to write, compressed if its name ends in .gz; default: perfkit.pt.trace.json.gz in"
            " the run folder, or NAME.perfkit.pt.trace.json.gz here.",
        ),
    ] = None,
) -> None:
    """Write a timeline for Perfetto (ui.perfetto.dev), chrome://tracing or TensorBoard.

    It shows steps, passes and kernels of every backend. Each kernel has its place in the model, bytes, FLOP, distance
    to its roof, and the source of each number. Several ranks share one clock, a process each; arrows lead from the
    rank that comes last to a collective to those that wait for it.
    """
    from perfkit import readers
    from perfkit.analysis.timeline.layout import timelines
    from perfkit.cli.parts import ranks
    from perfkit.render import trace as chrome

    path = paths[0]
    target = _target(path, out, "ranks" if len(paths) > 1 else _stem(path))
    if found := ranks.drawn(paths):
        _write_ranks(target, *found, " ".join(map(str, paths)))
        return
    if len(paths) > 1:
        raise UsageError("Several profiles make one trace only if they are of ranks.", "Give one profile at a time.")
    made = timelines(readers.read(path), _stem(path))
    if not any(len(timeline) for timeline in made):
        raise InputError(
            f"{path} holds no kernels with a duration, so there is no timeline.",
            "Capture it again: `perfkit run` with its profiler, or ncu with `--metrics gpu__time_duration.sum` added.",
        )
    chrome.write(target, made, str(path))
    _say(target, {t.name: (len(t), t.measured) for t in made})


def _write_ranks(target: Path, drawing: Drawing, problems: list[str], source: str) -> None:
    """Write the trace of several ranks, and say what was left out."""
    from perfkit.render import trace as chrome
    from perfkit.render.timeline import ranks

    for problem in problems:
        print(f"! {problem}", file=sys.stderr)
    made = ranks.timelines(drawing)
    rows = ranks.drawn_rows(drawing, made)
    arrows = [
        chrome.Arrow((a, int(rows[a][i])), (b, int(rows[b][j])))
        for a, i, b, j in drawing.ties.tolist()
        if rows[a][i] >= 0 and rows[b][j] >= 0
    ]
    chrome.write(target, made, source, arrows)
    _say(target, {t.name: (len(t), t.measured) for t in made})


def _target(path: Path, out: Path | None, name: str) -> Path:
    """The file to write: `out`, or the usual one for what is called `name`.

    Raises `UsageError` for a folder, or the profile itself.
    """
    if out is None:
        if path.is_dir() or path.name == MANIFEST:
            return (path if path.is_dir() else path.parent) / f"perfkit{ENDING}"
        return Path(f"{safe_name(name)}.perfkit{ENDING}")
    if out.is_dir():
        raise UsageError(f"{out} is a folder.", "Give --out the name of the file to write.")
    if path.exists() and out.exists() and out.samefile(path):
        raise UsageError(f"{out} is the profile that is read.", "Choose another --out.")
    make_folder(out.parent)
    return out


def _stem(path: Path) -> str:
    """The file's name without the ending of its format."""
    from perfkit.readers.formats import stem

    return stem(path.name) or "profile"


def _say(target: Path, drawn: dict[str, tuple[int, bool]]) -> None:
    from rich.console import Console

    from perfkit.render.cells import clean

    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    for name, (rows, measured) in drawn.items():
        laid = "" if measured else ", laid end to end: the profile has no start times"
        console.print(f"{clean(name)}: {rows:,} {'row' if rows == 1 else 'rows'}{laid}")
    console.print(f"Trace: {target}")
    console.print("Open it in https://ui.perfetto.dev or chrome://tracing; nothing is uploaded.")
