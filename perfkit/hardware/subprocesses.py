"""Running a measuring program as a process of its own and reading its JSON lines as they come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfkit.errors import RunFailed


def json_lines(
    command: Sequence[str], environment: Mapping[str, str], time_limit: float, name: str
) -> Iterator[dict[str, Any]]:
    """Yield the objects that `command` prints, one a line. At the time limit the process is ended and the lines end.

    Raises `RunFailed` when the process ends in an error; it is ended too when the caller stops iterating.
    """
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, **environment},
            encoding="utf-8",
        )
        expired = threading.Event()

        def end() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(time_limit, end)
        timer.start()
        try:
            yield from _objects(process)
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
        if code and not expired.is_set():
            complaints.seek(0)
            words = complaints.read().decode(errors="replace").strip().splitlines()
            raise RunFailed(f"{name} ended with exit code {code}: {words[-1] if words else 'it said nothing'}.")


def torchrun(hosts: int, each: int, options: Sequence[str] = ()) -> list[str]:
    """The beginning of a command that starts `each` ranks of a program on this host; `options` say where hosts meet."""
    where = options or ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
    return [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", str(hosts), "--nproc-per-node", str(each),
        "--max-restarts", "0", "--monitor-interval", "0.2", *where,
    ]  # fmt: skip


def thread_settings(threads: int) -> dict[str, str]:
    """The environment in which OpenMP uses `threads` threads, each staying on its core and awake between loops."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OMP_PROC_BIND": "true",
        "OMP_WAIT_POLICY": "active",
    }


def import_path() -> dict[str, str]:
    """The environment in which another interpreter finds this perfkit."""
    root = str(Path(__file__).resolve().parents[2])
    present = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join([root, present] if present else [root])}


def _objects(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            try:
                value = json.loads(line)
            except ValueError:
                continue  # a line cut off when the process was ended
            if isinstance(value, dict):
                yield value
