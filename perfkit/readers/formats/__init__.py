"""The formats of files that `perfkit.readers.read` knows: one short file each, found by looking into this folder.

A file that defines `FORMAT` is a format. It imports its reader where it reads, so that naming all formats loads none.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.table import KernelTable


@dataclass(frozen=True)
class Format:
    """One format. `files` names its files in the sentence that lists what perfkit reads, as a plural.

    `knows(path, head)` tells by the content whether a file is one; `head` is its first 256 bytes. `read(path)` gives
    its kernel table, or raises `InputError` for a damaged file and `Unavailable` where the format's tool is not here.
    One that is `general` takes all files of a kind, as any JSON: it is asked after the others.
    """

    files: str
    knows: Callable[[Path, bytes], bool]
    read: Callable[[Path], KernelTable]
    general: bool = False


@functools.cache
def all_formats() -> tuple[Format, ...]:
    """All formats by the names of their files."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").FORMAT for name in names)


def format_of(path: Path, head: bytes) -> Format | None:
    """The format of a file, None where none knows it."""
    asked = sorted(all_formats(), key=lambda one: one.general)
    return next((one for one in asked if one.knows(path, head)), None)
