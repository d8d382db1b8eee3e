"""Files under the logdir that perfkit can show, and nothing else.

A run folder and a profile are named by an identity: the number of the logdir and the path in it, percent-encoded. No
identity reaches outside: every file that would be read must, with all links followed, lie under the logdir.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

import msgspec

from perfkit.errors import InputError
from perfkit.readers import several
from perfkit.readers.formats import format_of, kineto, nsys
from perfkit.readers.sniff import head_of
from perfkit.run_folder import CEILINGS, KERNELS, MANIFEST, is_run_folder, read_manifest

RUN, TRACE, NCU, NSYS, RANKS = "run", "trace", "ncu", "nsys", "ranks"
MOST_FOUND = 2000
MOST_VISITED = 200_000  # files and folders looked at: a logdir that is a whole disk must not stop the page
_ENDINGS = {TRACE: kineto.FORMAT.endings, NCU: (".ncu-rep",), NSYS: nsys.FORMAT.endings}
_SURE = (".pt.trace.json", ".pt.trace.json.gz", *_ENDINGS[NCU], *_ENDINGS[NSYS])  # shown whatever they hold
_MARKS = (b'"traceEvents"', b'"ph"')


class LogdirEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A run or profile that was found: `name` for people, `size` in bytes, `modified` in seconds since 1970."""

    id: str
    name: str
    kind: str
    size: int
    modified: float


class LogdirListing(msgspec.Struct, kw_only=True):
    """The found files, the newest first, and sentences about what was left out."""

    entries: list[LogdirEntry]
    notes: list[str] = []


@dataclass(frozen=True)
class Root:
    """A logdir: its real path, and the name that `--logdir_spec` gives it ("" for a plain logdir)."""

    path: Path
    name: str = ""


@dataclass(frozen=True)
class LogdirFiles:
    """A run or profile on disk, checked: every file in `files` lies under the logdir."""

    path: Path
    kind: str
    name: str
    files: tuple[Path, ...]

    def state(self) -> tuple[tuple[str, int, int], ...]:
        """Path, size and time of every file: when it differs, what was read no longer holds."""
        return tuple((str(f), s.st_size, s.st_mtime_ns) for f in self.files if (s := _stat(f)))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size, _ in self.state())


class Outside(InputError):
    """Asked for something that is not under the logdir."""


class Logdir:
    """One logdir, or the several of a `--logdir_spec` ("name:path,name:path")."""

    def __init__(self, logdir: str | None, spec: str | None = None) -> None:
        pairs = [("", logdir)] if logdir else [_named(part) for part in (spec or "").split(",") if part.strip()]
        self.remote = [path for _, path in pairs if path and "://" in path]
        self.roots = [Root(_real(path), name) for name, path in pairs if path and "://" not in path]

    def listing(self) -> LogdirListing:
        """Everything that can be shown. Never raises for what it meets on disk."""
        found = LogdirListing(entries=[])
        for path in self.remote:
            found.notes.append(f"{path} is not on this machine: perfkit reads local folders only")
        for number, root in enumerate(self.roots):
            if not root.path.is_dir():
                found.notes.append(f"{root.path} is not a folder")
            found.entries += self._entries(number, root, found.notes)
        found.entries.sort(key=lambda e: (-e.modified, e.name))
        return found

    def any(self) -> bool:
        """Return whether there is anything to show."""
        return any(True for root in self.roots for _ in _walk(root.path, []))

    def place(self, identity: str) -> LogdirFiles:
        """The run or profile of an identity. Raises `Outside` for one that is not under the logdir or not shown."""
        number, _, rest = identity.partition("/")
        root = self.roots[int(number)] if _is_index(number, self.roots) else None
        if root is None or not rest:
            raise Outside("There is no such run under the logdir.", "Reload the list.")
        try:
            path = root.path / os.fsdecode(unquote_to_bytes(rest))
            _check(path, root)
            path = _resolved(path)
            kind = _kind(path)
            files = _files(path, kind)
            if kind == RANKS:  # files next to the traces are read where that is allowed
                files = tuple(file for file in files if file.parent == path or _inside(file, root))
            for file in files:
                _check(file, root)
        except (ValueError, OSError) as error:  # a name with a NUL, or longer than the system takes
            raise Outside("There is no such run under the logdir.", "Reload the list.") from error
        if not kind:
            raise Outside("There is no such run under the logdir.", "Reload the list.")
        return LogdirFiles(path, kind, _name(root, path), files)

    def _entries(self, number: int, root: Root, notes: list[str]) -> Iterator[LogdirEntry]:
        for path, kind in _walk(root.path, notes):
            stat = _stat(path / MANIFEST if kind == RUN else path)
            if stat is None or not _inside(path / MANIFEST if kind == RUN else path, root):
                continue
            identity = f"{number}/{quote(os.fsencode(path.relative_to(root.path)))}"
            yield LogdirEntry(id=identity, name=_name(root, path), kind=kind, size=stat.st_size, modified=stat.st_mtime)


def _is_index(text: str, of: list[Root]) -> bool:
    return text in [str(i) for i in range(len(of))]


def _named(part: str) -> tuple[str, str]:
    """A part of a `--logdir_spec`: "name:path", or a path alone (also one with a colon after a slash)."""
    name, colon, path = part.strip().partition(":")
    return (name, path) if colon and "/" not in name and not path.startswith("//") else ("", part.strip())


def _real(path: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(path)))


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _inside(path: Path, root: Root) -> bool:
    return _resolved(path).is_relative_to(root.path)


def _check(path: Path, root: Root) -> None:
    if not _inside(path, root):
        raise Outside("There is no such run under the logdir.", "Links and paths that lead out of it are not followed.")


def _name(root: Root, path: Path) -> str:
    """The path under the logdir; that of the logdir itself is its own name."""
    relative = str(path.relative_to(root.path)) if path != root.path else root.path.name
    shown = f"{root.name}/{relative}" if root.name else relative
    return os.fsencode(shown).decode("utf-8", "replace")  # names of files need not be Unicode


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _walk(folder: Path, notes: list[str]) -> Iterator[tuple[Path, str]]:
    """Run folders, profiles and folders of ranks' traces with their kinds; nothing hidden, no linked folders.

    Inside a run folder only the traces of its ranks count.
    """
    found = visited = 0
    for parent, folders, files in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(parent)
        visited += len(folders) + len(files)
        if visited > MOST_VISITED or found > MOST_FOUND:
            notes.append(f"{folder} holds too much to be searched as a whole: not everything is listed")
            return
        if MANIFEST in files:
            backends = [here / name for name in folders if ranks_in(here / name)]
            folders.clear()
            found += 1 + len(backends)
            yield here, RUN
            yield from ((backend, RANKS) for backend in backends)
            continue
        if ranks_in(here):
            found += 1
            yield here, RANKS
        for name in sorted(files):
            if kind := _kind_of_file(here / name):
                found += 1
                yield here / name, kind


def _kind(path: Path) -> str:
    """Return the kind of file at `path`; "" for one that is not shown."""
    if path.is_dir():
        return RUN if is_run_folder(path) else RANKS if ranks_in(path) else ""
    return _kind_of_file(path)


def ranks_in(folder: Path) -> tuple[Path, ...]:
    """The traces of ranks in a folder, by name; empty where there are not two."""
    try:
        named = sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")))
    except OSError:
        return ()
    found = tuple(p for p in named if _kind_of_file(p) == TRACE and (s := _stat(p)) and _of_a_rank(p, s.st_mtime_ns))
    return found if len(found) > 1 else ()


@functools.lru_cache(maxsize=4 * MOST_FOUND)
def _of_a_rank(path: Path, modified: int) -> bool:
    """Return whether a trace names its rank; looked up once for each state of the file."""
    return several.is_of_a_rank(path)


def _kind_of_file(path: Path) -> str:
    name = path.name
    kind = next((kind for kind, endings in _ENDINGS.items() if name.endswith(endings)), "")
    if name.startswith(".") or not kind or not path.is_file():
        return ""
    return kind if name.endswith(_SURE) or _looks_like_trace(path) else ""


def _looks_like_trace(path: Path) -> bool:
    """Return whether the beginning of a JSON file has the marks of a trace."""
    try:
        head = head_of(path)
        known = format_of(head)
    except InputError:
        return False
    return known == kineto.FORMAT and any(mark in head.text for mark in _MARKS)


def _files(path: Path, kind: str) -> tuple[Path, ...]:
    """Every file that reading `path` opens. A damaged manifest names none: reading it says what is wrong."""
    if kind == RANKS:
        beside = (path.parent / MANIFEST, path.parent / CEILINGS) if is_run_folder(path.parent) else ()
        return (*ranks_in(path), *beside)
    if kind != RUN:
        return (path,)
    files = [path / MANIFEST, path / CEILINGS]
    try:
        manifest = read_manifest(path)
    except InputError:
        return (files[0],)
    for backend in manifest.backends:
        files += [path / backend.name / KERNELS]
        files += [path / backend.name / backend.trace] if backend.trace else []
    return tuple(files)
