"""`perfkit report snapshot.pickle`: memory snapshots among what is reported on, and folders of ranks' snapshots."""

from __future__ import annotations

from pathlib import Path

from perfkit.cli.parts.output import Destination, put
from perfkit.cli.parts.shown import complain
from perfkit.errors import PerfkitError
from perfkit.render.output import of_page

NAME = "report-memory"


def report(files: list[Path], wanted: Destination) -> None:
    """Report on snapshots, all in one page. Raises `InputError` for one that cannot be read."""
    _put(files, files[0].name if len(files) == 1 else f"{len(files)} snapshots", wanted)


def _put(files: list[Path], title: str, wanted: Destination) -> None:
    from perfkit.memory.analyse import analyse
    from perfkit.readers.snapshot.read import read_snapshot
    from perfkit.render.pages import memory

    found = analyse([read_snapshot(file) for file in files], title)
    put(of_page(found, memory.page(found), NAME), wanted)


def explain_failures(folder: Path) -> None:
    """Say on stderr who held the memory when an allocation failed, where `folder` has snapshots of that moment."""
    from perfkit.readers.formats import MEMORY, content_of
    from perfkit.readers.formats.snapshot import FORMAT

    files = [file for file in sorted(folder.glob("*")) if file.suffix in FORMAT.endings and content_of(file) == MEMORY]
    if files:
        try:
            _put(files, "Out of memory", Destination(folder, on_stderr=True))
        except PerfkitError as error:
            complain(str(error))
