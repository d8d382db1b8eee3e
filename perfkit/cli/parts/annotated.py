"""Annotated listings of the programs that backends made: what `--annotate` of `run` and `report` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.run_folder import ANNOTATED_PAGE, ANNOTATED_TEXT, write_whole

if TYPE_CHECKING:
    from perfkit.readers.run import Run


NONE = "No backend of this run made a program of its own: Thunder and torch.compile do."


def write(run: Run, folder: Path) -> list[Path]:
    """Write `BACKEND/annotated.txt` and `.html` into `folder` for every backend of `run` that made a program.

    Returns the paths; none where no backend has both a program and kernels.
    """
    from perfkit.analysis.listing import listing
    from perfkit.analysis.report.rows import ceilings_of
    from perfkit.render.pages import annotated

    ceilings, _ = ceilings_of(run.ceilings)
    written = []
    for backend in run.manifest.backends:
        program, table = _program(run.folder / backend.name / backend.generated), run.tables.get(backend.name)
        made = listing(backend.name, _title(run), program, table, ceilings) if backend.generated and table else None
        if made is None or not program:
            continue
        place = folder / backend.name
        place.mkdir(parents=True, exist_ok=True)
        for name, text in (
            (ANNOTATED_TEXT, annotated.render_text(made)),
            (ANNOTATED_PAGE, annotated.render_html(made)),
        ):
            write_whole(place / name, text)
            written.append(place / name)
    return written


def _program(path: Path) -> str:
    """The text of a generated program; "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""


def _title(run: Run) -> str:
    settings = run.manifest.settings
    return f"{run.manifest.workload.title}, {settings.dtype} on {settings.device}"
