"""Runs of several sizes: making those that are not there, and the page that shows them together."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.analysis.sweep import Sweep
    from perfkit.capture.sweep import Cell


def run(
    axes: Mapping[str, list[str]],
    cells: Sequence[Cell],
    named: Mapping[str, str],
    unavailable: dict[str, str],
    folder: Path,
    as_json: bool,
) -> int:
    """Run the cells and show them; the exit code, 1 where a backend is wrong or failed in one of them."""
    from perfkit.capture.sweep import run_cells
    from perfkit.cli.parts.shown import progress

    with progress() as say:
        there = run_cells(cells, named, unavailable, say)
        say("report", "analysing")
        found = _analysed(axes, cells)
        written = _write(found, folder)
    _print(found, written, as_json)
    if there and not as_json:
        print(f"{len(there)} of {len(cells)} runs were there already.")
    return 1 if found.bad else 0


def _analysed(axes: Mapping[str, list[str]], cells: Sequence[Cell]) -> Sweep:
    from perfkit import readers
    from perfkit.analysis.report.analyse import analyse
    from perfkit.analysis.sweep import summarise

    return summarise(axes, [(cell.values, analyse(readers.read_run(cell.folder))) for cell in cells])


def _write(found: Sweep, folder: Path) -> list[Path]:
    from perfkit.render import page
    from perfkit.render.pages import sweep as rendered
    from perfkit.run_folder import write_whole

    made = rendered.page(found)
    texts = {"html": page.render_html(made), "md": page.render_markdown(made), "json": _json(found)}
    paths = {folder / f"sweep.{ending}": text for ending, text in texts.items()}
    for path, text in paths.items():
        write_whole(path, text)
    return list(paths)


def _json(found: Sweep) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def _print(found: Sweep, written: list[Path], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(_json(found))
        return
    from rich.console import Console

    from perfkit.render import page
    from perfkit.render.pages import sweep as rendered

    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else page.WIDTH)
    page.show(rendered.page(found), console)
    console.print(f"Report: {written[0]}", soft_wrap=True)
