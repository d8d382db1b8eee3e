"""Putting the stand-ins for ncu and nsys on a PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent


def install(folder: Path, *tools: str) -> str:
    """Make executables called `tools` in `folder`; the PATH that begins with it."""
    folder.mkdir(parents=True, exist_ok=True)
    for tool in tools:
        shim = folder / tool
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / f"fake_{tool}.py"}" "$@"\n')
        shim.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
