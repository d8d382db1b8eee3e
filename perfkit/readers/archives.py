"""Archives of profiles (`.zip`, `.tar`, `.tar.gz` and the like), unpacked for as long as they are read.

Only plain files are unpacked, below a folder of their own; an archive that names a place outside of it is refused, and
so is one that grows without reason. What is in it says by its content what it is, as any other file.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO

from perfkit.errors import InputError
from perfkit.readers.formats import format_of, readable
from perfkit.readers.sniff import begins_as_archive, head_of
from perfkit.run_folder import is_run_folder

MOST_FILES = 10_000
_MOST_SHRUNK, _UNSUSPICIOUS = 1000, 1 << 26  # bytes unpacked for each of the archive's, and how many any may hold
_PART = 1 << 20
_NAMED = 3  # files of an archive that a sentence names
_FOREIGN = ("/data.pkl", "/version", ".npy")  # of archives that hold a model or arrays: no profiles
_DAMAGE = (
    OSError, EOFError, ValueError, struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError,
    NotImplementedError, RuntimeError,
)  # fmt: skip


@contextmanager
def unpacked(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Give `paths` with the profiles and run folders of each archive in its place, unpacked into a temporary folder.

    Raises `InputError` for an archive that is damaged, names places outside of it, holds more than is plausible, or no
    profile.
    """
    with ExitStack() as kept:
        yield [one for path in paths for one in (_profiles(path, kept) if is_archive(path) else [path])]


def is_archive(path: Path) -> bool:
    """Return whether the file at `path` is an archive that may hold profiles."""
    return begins_as_archive(path) and not _holds_a_model(path)


def _holds_a_model(path: Path) -> bool:
    """Return whether `torch.save` or NumPy wrote a zip archive; False for a damaged one and a tar."""
    with suppress(*_DAMAGE), zipfile.ZipFile(path) as archive:
        return any(name.endswith(_FOREIGN) for name in archive.namelist())
    return False


def _profiles(path: Path, kept: ExitStack) -> list[Path]:
    """The profiles and run folders in the archive at `path`, in a folder that lasts as long as `kept`."""
    folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-"))) / path.name
    folder.mkdir()
    try:
        names = _unpack(path, folder)
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged: it cannot be unpacked.", "Copy or pack it again.") from error
    found = sorted(_known(folder))
    if not found:
        inside = f"It holds {', '.join(repr(name[:60]) for name in names[:_NAMED])}." if names else "It is empty."
        raise InputError(f"{path} is an archive without a profile that perfkit knows. {inside}", readable())
    return found


def _known(folder: Path) -> Iterator[Path]:
    """The run folders below `folder`, and the files outside of them that a format knows."""
    if is_run_folder(folder):
        yield folder
        return
    for place in folder.iterdir():
        if place.is_dir():
            yield from _known(place)
            continue
        with suppress(InputError):
            format_of(head_of(place))
            yield place


def _unpack(path: Path, folder: Path) -> list[str]:
    """Unpack into `folder`; the names of the files."""
    left, names = max(_UNSUSPICIOUS, _MOST_SHRUNK * path.stat().st_size), list[str]()
    with ExitStack() as kept:
        for name, source in _members(path, kept):
            names.append(name)
            if len(names) > MOST_FILES:
                raise InputError(f"{path} holds more than {MOST_FILES} files.", "Give the profiles themselves.")
            target = _place(path, folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as made:
                while part := source.read(_PART):
                    left -= len(part)
                    if left < 0:
                        raise InputError(f"{path} grows more than {_MOST_SHRUNK} times when it is unpacked.")
                    made.write(part)
            source.close()
    return names


def _members(path: Path, kept: ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each plain file in the archive."""
    if zipfile.is_zipfile(path):
        archive = kept.enter_context(zipfile.ZipFile(path))
        for info in archive.infolist():
            if not info.is_dir():
                yield info.filename, archive.open(info)
        return
    packed = kept.enter_context(tarfile.open(path))  # noqa: SIM115
    for member in packed:
        source = packed.extractfile(member) if member.isfile() else None
        if source is not None:
            yield member.name, source


def _place(path: Path, folder: Path, name: str) -> Path:
    """The path for a file of the archive, unpacked. Raises `InputError` for a name that leads out of `folder`."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\0" in name or ":" in parts.parts[0]:
        raise InputError(f"{path} names a place outside of it: {name[:80]!r}.", "Unpack it yourself, if you trust it.")
    return folder / parts
