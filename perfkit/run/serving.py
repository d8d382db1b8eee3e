"""The child's side of the pipe: commands of the parent in, progress, results and errors out.

The parent sends `(command, arguments)`; the child answers `("progress", text)` any number of times and then
`("done", result)` or `("error", (kind, message, hint))`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from perfkit import faults, ranges
from perfkit.errors import OutOfMemory, PerfkitError, RunFailed
from perfkit.run.worker import Worker


def serve(pipe: Connection) -> None:
    """Answer commands until the parent hangs up."""
    worker = Worker(lambda text: pipe.send(("progress", text)))
    while True:
        try:
            command, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(worker, command, arguments))


def _answer(worker: Worker, command: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    try:
        with ranges.listening_modules(getattr(worker, "program", None)):
            return "done", getattr(worker, command)(**arguments)
    except PerfkitError as error:
        if error.__cause__ is not None:
            traceback.print_exc()  # the log has what the sentence leaves out
        return "error", (type(error).__name__, error.message, error.hint)
    except OSError as error:
        return "error", (RunFailed.__name__, f"{error.strerror or error}.", "")
    except Exception as error:  # anything a backend or a user's model throws becomes a sentence; the log has the rest
        traceback.print_exc()
        failure = explained(error)
        return "error", (type(failure).__name__, failure.message, failure.hint)


SMALLER = "Take a smaller batch (-B) or sequence (-T), --recompute, or --dtype bf16."


def explained(error: Exception) -> RunFailed:
    """An exception of code outside of perfkit as a sentence and, where it is known, the next step."""
    wanted = re.search(r"(?i)tried to allocate (\d+(?:\.\d+)? ?\w+)", str(error))
    if not isinstance(error, RuntimeError | MemoryError) or not (wanted or "out of memory" in str(error)):
        return RunFailed(faults.sentence(error))
    where = "The GPU's memory" if "CUDA" in str(error) else "Memory"
    more = f": {wanted[1]} more were asked for" if wanted else ""
    return OutOfMemory(f"{where} ran out{more}.", SMALLER)


def main() -> None:
    """Serve on the pipe whose file descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends its children
    pipe = Connection(int(sys.argv[1]))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
        serve(pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skip the teardown of torch and OpenMP: seconds for nothing


if __name__ == "__main__":
    main()
