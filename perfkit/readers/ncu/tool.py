"""Reading a report through the `ncu` of an Nsight Compute on the PATH, where NVIDIA's Python package is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from perfkit.errors import InputError
from perfkit.readers.ncu import pages
from perfkit.readers.ncu.container import Container, damaged
from perfkit.readers.ncu.rows import make_table
from perfkit.table import KernelTable

READER = "ncu --import"
SECONDS = 600.0  # the tool takes about 12 ms a kernel of a full report


def find() -> str | None:
    """The `ncu` on the PATH, None without."""
    return shutil.which("ncu")


def read(path: Path, stated: Container, seconds: float = SECONDS) -> KernelTable:
    """The report as `ncu --import … --csv --page raw` prints it, checked for completeness.

    Raises `InputError` when the tool fails, takes too long, or prints fewer kernels than the report states.
    """
    command = [find() or "ncu", "--import", str(path), "--csv", "--page", "raw", "--print-units", "base"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"ncu did not read {path} within {seconds:.0f} s.", "Is it damaged? Copy it again.") from error
    except OSError as error:
        raise InputError(f"ncu cannot be started: {error.strerror}.", "Or: pip install 'perfkit[ncu]'.") from error
    if done.returncode:
        said = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").strip().splitlines()
        raise InputError(
            f"ncu cannot read {path}: {said[-1][:200] if said else f'exit code {done.returncode}'}.",
            "Is this ncu older than the one that captured it? Update it, or: pip install 'perfkit[ncu]'.",
        )
    results, warnings = pages.parse(done.stdout.decode("utf-8", "replace"), f"the output of ncu for {path}")
    if len(results) != stated.results or not all(r.values for r in results):
        raise damaged(path, f"it states {stated.results} results, ncu reads {len(results)}")
    said_rules = "read through ncu's raw page: NVIDIA's advice is not in it; pip install 'perfkit[ncu]' reads it too"
    return make_table(results, path, READER, [*warnings, said_rules])
