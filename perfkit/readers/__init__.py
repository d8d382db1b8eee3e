"""Readers: from files that a profiler or a run wrote to kernel tables.

    table = read("trace.pt.trace.json.gz")   # a torch.profiler trace: KernelTable
    run = read("runs/gpt2")                  # a run folder: Run, with one table a backend

What a file is, its content says, not its name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import InputError
from perfkit.readers.formats import format_of
from perfkit.readers.sniff import head_of
from perfkit.run_folder import MANIFEST, is_run_folder

if TYPE_CHECKING:
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable


def read(path: str | os.PathLike[str], *, whole: bool = False) -> KernelTable | Run:
    """Read a run folder (→ `Run`), a profile of torch.profiler or Nsight, or a kernel table (→ `KernelTable`).

    With `whole` a trace is kept with all that a page shows next to its kernels, so that it is not read again for it.
    Raises `InputError`, in a sentence, for what is missing, damaged or none of these; `Unavailable` for a format whose
    tool is not here.
    """
    path = Path(path)
    if path.name == MANIFEST and path.is_file():
        path = path.parent
    if path.is_dir():
        return _read_folder(path)
    return format_of(head_of(path)).table_of(path, whole)


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read a run folder. Raises `InputError` when it is not one, or its manifest is damaged or of a newer version."""
    from perfkit.readers import run

    return run.read_run(Path(folder))


def tables_of(source: KernelTable | Run) -> dict[str, KernelTable]:
    """The kernel tables by name in what `read` gave: one a backend of a run, or the table alone under "profile"."""
    from perfkit.table import KernelTable

    return {"profile": source} if isinstance(source, KernelTable) else source.tables


def _read_folder(path: Path) -> Run:
    if not is_run_folder(path):
        raise InputError(
            f"{path} is not a run folder: it has no {MANIFEST}.", "Give the folder that `perfkit run` printed."
        )
    return read_run(path)
