"""Readers: from files that a profiler or a run left behind to kernel tables.

    table = read("trace.pt.trace.json.gz")   # a torch.profiler trace: KernelTable
    run = read("runs/gpt2")                  # a run folder: Run, with one table a backend

What a file is, its content says, not its name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import InputError
from perfkit.readers.formats import all_formats, format_of
from perfkit.run_folder import MANIFEST, is_run_folder

if TYPE_CHECKING:
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable

_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
}


def read(path: str | os.PathLike[str]) -> KernelTable | Run:
    """Read a run folder (→ `Run`), a profile of torch.profiler or Nsight, or a kernel table (→ `KernelTable`).

    Raises `InputError`, in a sentence, for what is missing, damaged or none of these; `Unavailable` for a format whose
    tool is not here.
    """
    path = Path(path)
    if path.name == MANIFEST and path.is_file():
        path = path.parent
    if path.is_dir():
        return _read_folder(path)
    head = _head(path)
    known = format_of(path, head)
    if known is not None:
        return known.read(path)
    kind = next((text for magic, text in _FOREIGN.items() if head.startswith(magic)), "")
    if kind:
        raise InputError(f"{path} is {kind}, which this version cannot read.", _readable())
    from perfkit.readers.training_log import is_training_log

    if is_training_log(path):
        raise InputError(f"{path} is a training log, not a profile.", "`perfkit report` plots it.")
    raise InputError(f"{path} is not a profile that perfkit knows.", _readable())


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read a run folder. Raises `InputError` when it is none, or its manifest is damaged or of a newer version."""
    from perfkit.readers import run

    return run.read_run(Path(folder))


def tables_of(source: KernelTable | Run) -> dict[str, KernelTable]:
    """The kernel tables by name in what `read` gave: one a backend of a run, or the table alone under "profile"."""
    from perfkit.table import KernelTable

    return {"profile": source} if isinstance(source, KernelTable) else source.tables


def _readable() -> str:
    *others, last = ["run folders", *(one.files for one in all_formats())]
    return f"perfkit reads {', '.join(others)} and {last}."


def _read_folder(path: Path) -> Run:
    if not is_run_folder(path):
        raise InputError(
            f"{path} is not a run folder: it has no {MANIFEST}.", "Give the folder that `perfkit run` printed."
        )
    return read_run(path)


def _head(path: Path) -> bytes:
    """The first bytes of a file."""
    try:
        with path.open("rb") as file:
            head = file.read(256)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.", "Give the path of a run folder or profile.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    if not head:
        raise InputError(f"{path} is empty.", "Capture it again.")
    return head
