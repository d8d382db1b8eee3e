"""A sweep: every combination of the values of some options, each a run folder of its own.

A run that is whole already and of the same settings is not repeated, so a sweep that was stopped goes on where it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.run.session import Session
from perfkit.run_folder import Settings, is_run_folder, read_manifest

Progress = Callable[[str, str], None]
Values = Mapping[str, str]


@dataclass(frozen=True)
class SweepCell:
    """One run of the sweep: what is varied, by name, its settings, and where it lies."""

    values: Values
    settings: Settings
    folder: Path


def combinations(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination, the first axis changing slowest; one empty combination without axes."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def folder_name(values: Values) -> str:
    """The folder of a cell: `batch_size=32,width=128`; `all` where nothing is varied."""
    return ",".join(f"{name}={value}" for name, value in values.items()).replace("/", "_") or "all"


def run_cells(
    cells: Sequence[SweepCell], backends: Mapping[str, str], unavailable: dict[str, str], progress: Progress
) -> list[SweepCell]:
    """Run the missing cells; return those that existed. Raises `UsageError` where a folder holds another run.

    Every folder is looked at before anything runs.
    """
    there = [cell for cell in cells if is_run_folder(cell.folder)]
    for cell in there:
        _check(cell, backends)
    for number, cell in enumerate(cells, start=1):
        if cell not in there:
            where = f"{number} of {len(cells)}, {folder_name(cell.values)}"
            session = Session(
                cell.settings, backends, cell.folder, dict(unavailable),
                progress=lambda who, what, where=where: progress(where, f"{who}: {what}"),  # type: ignore[misc]
            )  # fmt: skip
            session.run()
    return there


def _check(cell: SweepCell, backends: Mapping[str, str]) -> None:
    """Raise `UsageError` unless the run in the cell's folder is the one that would be made."""
    manifest = read_manifest(cell.folder)
    lacking = set(backends) - {b.name for b in manifest.backends}
    if manifest.settings != cell.settings or lacking:
        what = f"lacks the backend {sorted(lacking)[0]}" if lacking else "has other settings"
        raise UsageError(f"The run in {cell.folder} {what}.", "Choose another --out, or remove that folder.")
