"""Files that a client may read: profiles by name and kind, and lines of sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perfkit.errors import UsageError
from perfkit.readers.folder import kind_of
from perfkit.render.cells import clean
from perfkit.run_folder import is_run_folder

_MOST = 10_000  # files that are looked at
_SOURCES = (".py", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".pyx")
_LARGEST = 1 << 22  # bytes of a source file


class ProfileFile(NamedTuple):
    """A file or run folder that can be reported on, its kind in words, and its size in bytes."""

    path: Path
    kind: str
    size: int


class FileLines(NamedTuple):
    """Lines of a source file as text: the number of the first one, of the last one, and of all that the file has."""

    first: int
    last: int
    of: int
    text: str


def profiles(place: Path) -> Iterator[ProfileFile]:
    """Profiles and run folders at and below `place`, by name; a run folder replaces its files.

    What is hidden is left out.
    """
    if place.is_file():
        yield from _profile(place)
        return
    count = 0
    for folder, inside, files in os.walk(place):
        here = Path(folder)
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        if is_run_folder(here):
            inside.clear()
            yield ProfileFile(here, kind_of(here)[0], sum(f.stat().st_size for f in here.rglob("*") if f.is_file()))
            continue
        for name in sorted(name for name in files if not name.startswith(".")):
            count += 1
            if count > _MOST:
                return
            if (here / name).is_file():
                yield from _profile(here / name)


def _profile(path: Path) -> Iterator[ProfileFile]:
    if path.suffix in _SOURCES:
        return
    kind, known = kind_of(path)
    if known:
        yield ProfileFile(path, kind.removeprefix("of the kind: "), path.stat().st_size)


def source(path: Path, first: int, most: int) -> FileLines:
    """Return the lines of a source file from `first` (1 is the first one), at most `most` characters.

    Control characters but tabs become escapes. Raises `UsageError` for another file, and for a line that it lacks.
    """
    if not path.is_file() or path.suffix not in _SOURCES or path.stat().st_size > _LARGEST:
        raise UsageError(f"{clean(path.name)} is not a source file.", f"Its name ends in {', '.join(_SOURCES)}.")
    lines = path.read_text(errors="replace").removesuffix("\n").split("\n")
    if not 1 <= first <= len(lines):
        raise UsageError(f"{clean(path.name)} has lines 1 to {len(lines)}.")
    kept: list[str] = []
    for line in lines[first - 1 :]:
        shown = "\t".join(clean(part, most) for part in line.split("\t"))
        most -= len(shown) + 2  # a line's end is two characters of JSON
        if kept and most < 0:
            break
        kept.append(shown)
    return FileLines(first, first + len(kept) - 1, len(lines), "\n".join(kept))
