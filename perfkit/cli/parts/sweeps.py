"""Runs of several sizes: making those that are missing, and the page that shows them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.cli.parts.output import Destination, Json, show, write
from perfkit.cli.parts.shown import progress
from perfkit.render.output import of_page

if TYPE_CHECKING:
    from perfkit.analysis.sweep import Sweep
    from perfkit.run.sweep import SweepCell


def run(
    axes: Mapping[str, list[str]],
    cells: Sequence[SweepCell],
    named: Mapping[str, str],
    unavailable: dict[str, str],
    folder: Path,
    as_json: Json | None,
) -> int:
    """Run the cells and show them; return the exit code, 1 where a backend is wrong or failed in one of them."""
    from perfkit.render.pages import sweep as rendered
    from perfkit.run.sweep import run_cells

    wanted = Destination(folder, as_json=as_json)

    with progress() as say:
        there = run_cells(cells, named, unavailable, say)
        say("report", "analysing")
        found = _analysed(axes, cells)
        made = of_page(found, rendered.page(found), "sweep")
        written = write(made, wanted)
    show(made, wanted, written)
    if there and not as_json:
        print(f"{len(there)} of {len(cells)} runs were there already.")
    return 1 if found.bad else 0


def _analysed(axes: Mapping[str, list[str]], cells: Sequence[SweepCell]) -> Sweep:
    from perfkit import readers
    from perfkit.analysis.report.analyse import analyse
    from perfkit.analysis.sweep import summarise

    return summarise(axes, [(cell.values, analyse(readers.read_run(cell.folder))) for cell in cells])
