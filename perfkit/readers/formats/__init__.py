"""The formats of files that `perfkit.readers.read` knows: one short file each, found by looking into this folder.

A file that defines `FORMAT` is a format. It imports its reader where it reads, so that naming all formats loads none.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import InputError
from perfkit.readers.foreign import foreign_kind
from perfkit.readers.sniff import Head, head_of

if TYPE_CHECKING:
    from perfkit.table import KernelTable


KERNELS, MEMORY, TRAINING = "kernels", "memory", "training"
STEP, PROFILE = "step", "profile"


@dataclass(frozen=True)
class Format:
    """One format. `files` names its files in the sentence that lists what perfkit reads, as a plural.

    `knows(head)` recognises a file by the beginning of its content: the first format that knows a file has it.
    `read(path)` gives its kernel table, or raises `InputError` for a damaged file and `Unavailable` where the format's
    tool is not here. `may_be(head)` takes all files of a kind, as any JSON, that no format knows and that are of no
    foreign kind.
    `read_whole` keeps in the table what a page shows next to it, where the format holds such things. What it `holds`
    decides the report.

    A file's name without its ending, one of `endings`, is the name of the profile, and follows `title` in the report's
    title. `unit` is what amounts are of: a step, or the whole profile where kernels were measured one by one.
    """

    files: str
    knows: Callable[[Head], bool]
    read: Callable[[Path], KernelTable]
    may_be: Callable[[Head], bool] | None = None
    read_whole: Callable[[Path], KernelTable] | None = None
    holds: str = KERNELS
    endings: tuple[str, ...] = ()
    title: str = "Kernel table"
    unit: str = STEP

    def table_of(self, path: Path, whole: bool = False) -> KernelTable:
        """The kernel table of the file at `path`, whose source says what it was read from in words."""
        table = (self.read_whole if whole and self.read_whole else self.read)(path)
        return self.described(table, path)

    def described(self, table: KernelTable, path: Path) -> KernelTable:
        """`table`, whose source has the name, the title and the unit that a report needs."""
        table.source |= {"name": stem(path.name), "title": self.title, "unit": self.unit}
        return table


@functools.cache
def all_formats() -> tuple[Format, ...]:
    """All formats by the names of their files."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").FORMAT for name in names)


def stem(name: str) -> str:
    """A file's name without the longest ending of any format: `gh200-full-2025.1.ncu-rep` → `gh200-full-2025.1`."""
    fitting = (e for known in all_formats() for e in known.endings if name.lower().endswith(e) and len(name) > len(e))
    return name[: len(name) - max(map(len, fitting), default=0)]


def format_of(head: Head) -> Format:
    """The format of a file. Raises `InputError`, which says what a file of another kind is and what to do."""
    known = next((one for one in all_formats() if one.knows(head)), None)
    if known:
        return known
    foreign = foreign_kind(head)
    packed = f", compressed by {head.packing}" if head.packing else ""
    if foreign is not None:
        raise InputError(f"{head.path} is {foreign.is_}{packed}.", foreign.next_step)
    likely = next((one for one in all_formats() if one.may_be and one.may_be(head)), None)
    if likely:
        return likely
    if head.packing:
        raise InputError(f"{head.path} is compressed by {head.packing}.", f"Unpack it first. {readable()}")
    raise InputError(f"{head.path} is not a profile that perfkit knows.", readable())


def content_of(path: Path) -> str:
    """Return what the file or run folder at `path` holds; kernels where reading it says what is wrong."""
    if path.is_file():
        with suppress(InputError):
            return format_of(head_of(path)).holds
    return KERNELS


def readable() -> str:
    """A sentence that lists what perfkit reads."""
    *others, last = ["run folders", *(one.files for one in all_formats())]
    return f"perfkit reads {', '.join(others)} and {last}."
