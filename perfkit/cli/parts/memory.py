"""`perfkit report snapshot.pickle`: memory snapshots among what is reported on, and folders of ranks' snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import InputError

if TYPE_CHECKING:
    from perfkit.cli.parts.output import Wanted
    from perfkit.readers.sniff import Head

NAME = "report-memory"
ENDINGS = (".pickle", ".pkl")


def report_snapshots(paths: list[Path], wanted: Wanted, counters: bool) -> list[Path]:
    """Report on the snapshots among `paths`, all in one page; the other paths, in order.

    Raises `UsageError` for options that a snapshot does not take, `InputError` for one that cannot be read.
    """
    from perfkit.errors import UsageError

    given = {path: snapshots_of(path) for path in paths}
    files = [file for found in given.values() for file in found]
    if not files:
        return paths
    if counters:
        raise UsageError(f"{files[0]} is a memory snapshot, and --counters belongs to a profile.", "Leave it out.")
    title = files[0].name if len(files) == 1 else f"{len(files)} snapshots"
    _put(files, title, wanted)
    return [path for path, found_files in given.items() if not found_files]


def _put(files: list[Path], title: str, wanted: Wanted) -> None:
    from perfkit.cli.parts.output import put
    from perfkit.memory.analyse import analyse
    from perfkit.readers.snapshot.read import read_snapshot
    from perfkit.render.output import of_page
    from perfkit.render.pages import memory

    found = analyse([read_snapshot(file) for file in files], title)
    put(of_page(found, memory.page(found), NAME), wanted)


def explain_failures(folder: Path) -> None:
    """Say on stderr who held the memory when an allocation failed, where `folder` has snapshots of that moment."""
    from perfkit.cli.parts.output import Wanted
    from perfkit.cli.parts.shown import complain
    from perfkit.errors import PerfkitError

    if files := snapshots_of(folder):
        try:
            _put(files, "Out of memory", Wanted(folder, on_stderr=True))
        except PerfkitError as error:
            complain(str(error))


def snapshots_of(path: Path) -> list[Path]:
    """`path` where it is a snapshot, or the snapshots in a folder that is not a run folder, by name."""
    from perfkit.run_folder import is_run_folder

    if path.is_file():
        return [path] if _is_snapshot(path) else []
    if not path.is_dir() or is_run_folder(path):
        return []
    return [file for file in sorted(path.iterdir()) if file.suffix in ENDINGS and _is_snapshot(file)]


def _is_snapshot(path: Path) -> bool:
    from perfkit.readers.formats import snapshot
    from perfkit.readers.sniff import head_of

    try:
        head: Head = head_of(path)
    except InputError:  # reading it says what is wrong
        return False
    return snapshot.knows(head)
