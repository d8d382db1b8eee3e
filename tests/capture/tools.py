"""Putting the stand-ins for ncu and nsys on a PATH, and a real capture for them to hand out."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Pair:
    """A torch.profiler trace of two steps and ncu's report (metrics, one step) of the same program on an H200.

    The program launches CuPy and Triton kernels, `kernels` a step, inside perfkit's ranges.
    """

    trace: Path
    report: Path
    kernels: int


_FILES = HERE.parent / "fixtures" / "pair"
PAIR = Pair(_FILES / "trace.json.gz", _FILES / "counters.ncu-rep.gz", 12)


def install(folder: Path, *tools: str) -> str:
    """Make executables called `tools` in `folder`; the PATH that begins with it."""
    folder.mkdir(parents=True, exist_ok=True)
    for tool in tools:
        shim = folder / tool
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / f"fake_{tool}.py"}" "$@"\n')
        shim.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
