"""Putting the stand-ins for ncu and nsys on a PATH, and a real capture for them to hand out.

eval "$(python3 -m tests.support.capture.tools FOLDER)"     for a shell
"""

from __future__ import annotations

import gzip
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
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


_FILES = HERE.parents[1] / "fixtures" / "pair"
PAIR = Pair(_FILES / "trace.json.gz", _FILES / "counters.ncu-rep.gz", 12)


def install(folder: Path, *tools: str) -> str:
    """Make executables called `tools` in `folder`; the PATH that begins with it."""
    folder.mkdir(parents=True, exist_ok=True)
    for tool in tools:
        shim = folder / tool
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / f"fake_{tool}.py"}" "$@"\n')
        shim.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def stage(folder: Path) -> dict[str, str]:
    """Install both stand-ins in `folder` with something to hand out; the variables that they need."""
    from tests.support.readers import nsys_exports

    path = install(folder, "ncu", "nsys")
    report = folder / "captured.ncu-rep"
    report.write_bytes(gzip.decompress(PAIR.report.read_bytes()))
    export = folder / "captured.sqlite"
    export.unlink(missing_ok=True)
    nsys_exports.write(export, nsys_exports.two_steps())
    return {
        "PATH": path,
        "FAKE_NCU_REPORT": str(report),
        "FAKE_NCU_KERNELS": ",".join(["kernel"] * PAIR.kernels),
        "FAKE_NCU_ARGUMENTS": str(folder / "ncu.json"),
        "FAKE_NSYS_EXPORT": str(export),
        "FAKE_NSYS_ARGUMENTS": str(folder / "nsys.json"),
    }


def run(program: Sequence[str]) -> int:
    """Run a program under a stand-in: perfkit's own as a fork, where there is a server of forks. Its exit code."""
    server = os.environ.get("PERFKIT_TEST_FORKS")
    if server is None or program[1:2] != ["-m"]:
        return subprocess.run(program, check=False).returncode
    sys.path.append(str(HERE.parents[2]))
    from tests.support import forked

    return forked.code_of(server, "program", program[1:])


if __name__ == "__main__":
    for name, value in stage(Path(sys.argv[1]).resolve()).items():
        print(f"export {name}={shlex.quote(value)}")
