"""Traces and exports of several ranks: which of some files are, and reading them in processes of their own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from perfkit.errors import InputError, PerfkitError
from perfkit.readers.formats import format_of, kineto, nsys
from perfkit.readers.sniff import head_of
from perfkit.run_folder import is_run_folder
from perfkit.table import KernelTable

_NAMED = re.compile(r"rank[-_.]?\d+", re.IGNORECASE)
_TRACES = ("*.json", "*.json.gz", "*.sqlite")

T = TypeVar("T")


def traces_of(path: Path) -> list[Path]:
    """`path` itself, or the traces in a folder other than a run folder, by name. Raises `InputError` for an empty
    one."""
    if not path.is_dir() or is_run_folder(path):
        return [path]
    found = sorted({file for pattern in _TRACES for file in path.glob(pattern) if is_of_a_rank(file)})
    if not found:
        raise InputError(
            f"{path} is not a run folder, and holds no traces of ranks.",
            "Give the folder that `perfkit run` printed, or one of traces that torch.profiler wrote, or nsys exported.",
        )
    return found


def is_of_a_rank(path: Path) -> bool:
    """Return whether a file is a trace of torch.profiler, or an export of Nsight Systems, that names its rank: in what
    it says of its process, or in its file name."""
    if not path.is_file():
        return False
    try:
        head = head_of(path)
        known = format_of(head)
    except InputError:
        return False
    if known == nsys.FORMAT and nsys.is_export(head):
        from perfkit.readers.nsys.rank import names_its_rank

        return names_its_rank(path)
    return known == kineto.FORMAT and (b'"distributedInfo"' in head.text or _NAMED.search(path.name) is not None)


def read_all(
    paths: Sequence[Path], keep: Callable[[KernelTable], T], progress: Callable[[str], None] = lambda text: None
) -> tuple[list[T], list[str]]:
    """Return what `keep` takes of each trace's table, and a sentence for each trace that could not be read.

    As many are read at once as there are cores; `keep` runs there, so that only what it takes comes back.
    """
    workers = min(len(paths), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    found, problems = [], []
    for number, (path, result) in enumerate(_results(paths, partial(_read, keep), workers), 1):
        try:
            found.append(result())
        except PerfkitError as error:
            said = str(error)
            problems.append(said if str(path) in said else f"{path}: {said}")
        progress(f"{number} of {len(paths)} traces read")
    return found, problems


def _read(keep: Callable[[KernelTable], T], path: Path) -> T:
    from perfkit.readers import read

    table = read(path)
    if not isinstance(table, KernelTable):
        raise InputError(f"{path} is a run folder, not a trace.", "Give the traces of its ranks.")
    return keep(table)


def _results(paths: Sequence[Path], read: Callable[[Path], T], workers: int) -> Iterator[tuple[Path, Callable[[], T]]]:
    """Each path with what gives its result or raises, in order."""
    if workers < 2:
        for path in paths:
            yield path, partial(read, path)
        return
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures: list[Future[T]] = [pool.submit(read, path) for path in paths]
        for path, future in zip(paths, futures, strict=True):
            yield path, future.result
