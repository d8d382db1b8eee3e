"""Reading the results of a report in processes of their own, a slice each.

NVIDIA's package dies on some damaged files and never gives memory back (7.6 MB a kernel of a full Hopper report), so
every slice gets a process, a limit of time and a limit of memory. What comes back is counted: a report of which kernels
were lost is refused.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from perfkit.errors import InputError, Unavailable
from perfkit.readers.ncu.container import Container, damaged
from perfkit.readers.ncu.metrics import WANTED
from perfkit.readers.ncu.results import NcuResult, to_base

WORKER = Path(__file__).with_name("worker.py")
SLICE_BYTES = 21 << 20  # payload of a slice: about 25 kernels of a full Hopper report, 390 MB in their process
SLICE_RESULTS = 160  # of kernels with little payload the reader keeps more: 1.8 MB of a Turing one
SECONDS = 60.0  # for one slice; a usual one takes less than a second
MEMORY = 4 << 30  # bytes of address space of a worker
WORKERS = 2


class Failed(Exception):
    """Why NVIDIA's reader gave back nothing that can be used."""


class _Last(msgspec.Struct):
    """The last line of a worker: how many results it wrote, and how many the reader saw in the whole file."""

    done: int
    results: int


def package_folder() -> Path | None:
    """Return the folder of NVIDIA's package ncu_report; None where it is not installed."""
    try:
        spec = importlib.util.find_spec("ncu_report")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent.parent if spec and spec.origin else None


def read_results(path: Path, container: Container, seconds: float = SECONDS) -> list[NcuResult]:
    """All results of the report at `path`, in file order.

    Raises `Unavailable` without the package, `InputError` when the reader dies, hangs, or gives back less than the
    container states.
    """
    folder = package_folder()
    if folder is None:
        raise Unavailable(
            f"{path} needs NVIDIA's package ncu-report, or ncu itself on the PATH, to be read.",
            "Install the package (no GPU needed): pip install 'perfkit[ncu]'.",
        )
    before = _identity(path)
    slices = list(_slices(container))
    with ThreadPoolExecutor(min(WORKERS, len(slices), os.cpu_count() or 1)) as pool:
        parts = [pool.submit(_read_slice, path, folder, s, container, seconds) for s in slices]
        found = [result for part in parts for result in part.result()]
    if _identity(path) != before:
        raise InputError(f"{path} changed while it was read.", "Read it again when it is complete.")
    return found


def _slices(container: Container) -> Iterator[tuple[int, int]]:
    """Ranges of results, each small enough for one process."""
    first = taken = 0
    for index, size in enumerate(container.sizes):
        if index > first and (taken + size > SLICE_BYTES or index - first >= SLICE_RESULTS):
            yield first, index
            first, taken = index, 0
        taken += size
    yield first, container.results


def _read_slice(
    path: Path, folder: Path, part: tuple[int, int], container: Container, seconds: float
) -> list[NcuResult]:
    """The results of one slice, verified."""
    request = {
        "path": str(path.resolve()),
        "first": part[0],
        "last": part[1],
        "wanted": WANTED,
        "package": str(folder),
        "memory": MEMORY,
    }
    try:
        return _verified(said(WORKER, request, seconds), part, container.results)
    except Failed as error:
        raise damaged(path, str(error)) from error


def said(worker: Path, request: dict[str, Any], seconds: float) -> bytes:
    """Return what `worker` answers. Raises `Failed`."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(worker)],
            input=msgspec.json.encode(request),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"NVIDIA's reader did not finish within {seconds:.0f} s") from error
    if done.returncode:
        raise Failed(f"NVIDIA's reader {_end(done.returncode, done.stderr)}")
    return done.stdout


def _verified(output: bytes, part: tuple[int, int], results: int) -> list[NcuResult]:
    lines = output.splitlines()
    try:
        last = msgspec.json.decode(lines[-1], type=_Last)
        found = [msgspec.json.decode(line, type=NcuResult) for line in lines[:-1]]
    except (IndexError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Failed("what NVIDIA's reader gives back cannot be understood") from error
    if last.results != results or len(found) != part[1] - part[0]:
        raise Failed(f"it states {results} results, of which {last.results} can be read")
    empty = sum(not r.metrics or not r.values for r in found)
    if empty:
        raise Failed(f"{empty} of its {results} results come back without metrics")
    for result in found:
        result.values.update({name: to_base(result.number(name), unit) for name, unit in result.units.items()})
    return found


def _end(code: int, stderr: bytes) -> str:
    if code < 0:
        try:
            return f"died of {signal.Signals(-code).name}"
        except ValueError:
            return f"died of signal {-code}"
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return f"failed ({lines[-1][:200] if lines else f'exit code {code}'})"


def _identity(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is replaced or written to."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path} vanished while it was read.", "Read it again.") from error
    return status.st_ino, status.st_size, status.st_mtime_ns
