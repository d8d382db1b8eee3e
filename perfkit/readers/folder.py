"""The files of a folder of profiles: the kind of each, and which are read together.

Ranks, snapshots and logs of one folder are known by what reads them. Here are files that are read with another: lists
of copies and calls next to kernels, captures next to a serving trace, a report of ncu next to the only trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.errors import InputError
from perfkit.readers.foreign import foreign_kind
from perfkit.readers.formats import format_of, kineto, ncu, nsys
from perfkit.readers.kineto import execution_trace
from perfkit.readers.sniff import head_of
from perfkit.run_folder import KERNELS, LINES, is_run_folder

MOST = 1000  # files that are looked at
READ = "read"
_DEEPEST = 6
_NAMED = 3  # files of a kind that a line names
# Endings of files that are read with the one of the other ending, or hold less of the same profile.
_WITH = (
    ("memory_copy_trace.csv", "kernel_trace.csv"), ("cuda_api_sum.csv", "cuda_gpu_kern_sum.csv"),
    ("cuda_gpu_mem_time_sum.csv", "cuda_gpu_kern_sum.csv"),
)  # fmt: skip
_PARTS = (KERNELS, LINES)  # of a profile of perfkit's: its table, and the lines of one more step
_INSTEAD = ((".trace.json.gz", ".xplane.pb"), (".nsys-rep", ".sqlite"))


@dataclass(frozen=True)
class FolderItem:
    """A file or run folder: what it is, and what is done with it."""

    path: Path
    kind: str
    use: str


@dataclass
class Contents:
    """The items of a folder, and for a trace the report of ncu whose counters belong to it."""

    items: list[FolderItem] = field(default_factory=list)
    counters: dict[Path, Path] = field(default_factory=dict)

    @property
    def read(self) -> list[Path]:
        """The files and run folders that are reported on by themselves."""
        return [item.path for item in self.items if item.use == READ]

    def lines(self) -> list[str]:
        """Return a line for each kind of file and what is done with it."""
        groups: dict[tuple[str, str], list[str]] = {}
        for item in self.items:
            groups.setdefault((item.kind, item.use), []).append(item.path.name)
        return [_line(kind, use, names) for (kind, use), names in groups.items()]


def _line(kind: str, use: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}: {kind}; {use}"


def contents_of(folder: Path) -> Contents:
    """Return what is in `folder`. Raises `InputError` where no file is a profile, or there are too many files."""
    found = Contents()
    paths = list(_paths(folder, 0))
    if len(paths) > MOST:
        raise InputError(f"{folder} holds more than {MOST} files.", "Give the profiles themselves.")
    for path in paths:
        kind, known = kind_of(path)
        found.items.append(FolderItem(path, kind, _use(path) if known else _use_of_another(path, paths)))
    if not found.read:
        said = f" {found.lines()[0]}." if found.items else " It is empty."
        raise InputError(
            f"{folder} is not a run folder, and holds no profile that perfkit reads.{said}",
            "Give the folder that `perfkit run` printed, or one with profiles.",
        )
    _join_counters(found)
    return found


def _paths(folder: Path, depth: int) -> Iterator[Path]:
    """The files and run folders below a folder, by name."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() and not is_run_folder(path):
            if depth < _DEEPEST:
                yield from _paths(path, depth + 1)
        else:
            yield path


def kind_of(path: Path) -> tuple[str, bool]:
    """Return the kind of a file or run folder, and whether perfkit reads it."""
    if path.is_dir():
        return "a run of perfkit", True
    try:
        head = head_of(path)
    except InputError:
        return "empty, or cannot be read", False
    try:
        return f"of the kind: {format_of(head).files}", True
    except InputError:
        foreign = foreign_kind(head)
        return foreign.is_ if foreign else "not a profile", False


def _use(path: Path) -> str:
    """The use of a profile, by the files next to it."""
    for ending, other in _WITH:
        if (beside := _in_the_same_folder(path, ending, other)) is not None:
            return f"read with {beside.name}"
    for ending, other in _INSTEAD:
        if (beside := _in_the_same_folder(path, ending, other)) is not None:
            return f"left out for {beside.name}, the same profile"
    if path.name in _PARTS and any(path.parent.glob("*trace.json*")):
        return "left out, a part of the profile next to it"
    is_trace = path.name.endswith((".json", ".json.gz"))
    if is_trace and path.parent.name.startswith("capture") and any(path.parent.parent.glob("*.json*")):
        return "read with the trace next to its folder"
    return READ


def _use_of_another(path: Path, paths: list[Path]) -> str:
    """The use of a file that perfkit reads next to another alone."""
    if path not in execution_trace.in_folder(path.parent):
        return "left out"
    traces = [one for one in paths if one.parent == path.parent and one.is_file() and kind_of(one)[1]]
    return "its shapes and values join the trace next to it, where both are of one recording" if traces else "left out"


def _in_the_same_folder(path: Path, ending: str, other: str) -> Path | None:
    if not path.name.endswith(ending):
        return None
    found = path.with_name(path.name.removesuffix(ending) + other)
    return found if found.is_file() else None


def _join_counters(found: Contents) -> None:
    """Let the only report of ncu belong to the only trace or export."""
    formats = {path: format_of(head_of(path)) for path in found.read if path.is_file() and kind_of(path)[0][:2] == "of"}
    traces = [path for path, one in formats.items() if one in (kineto.FORMAT, nsys.FORMAT)]
    reports = [path for path, one in formats.items() if one == ncu.FORMAT]
    if len(traces) == len(reports) == 1:
        found.counters[traces[0]] = reports[0]
        use = f"its counters are joined to {traces[0].name}"
        found.items = [FolderItem(i.path, i.kind, use) if i.path == reports[0] else i for i in found.items]
