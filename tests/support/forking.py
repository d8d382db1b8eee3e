"""The server of `tests.support.forks`: it imports once, runs nothing, and forks a process for each request."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from perfkit.capture.agent.order import VARIABLE
from tests.support import forked
from tests.support.ceilings import measure_quickly
from tests.support.forks import STARTERS, TORCHRUN, started_rank

PRELOADED = (
    "torch", "torch._inductor.compile_fx", "torch.distributed.run", "pyarrow.dataset", "pyarrow.parquet",
    "rich.console", "psutil", "isal.igzip",
    "tensorboard.compat.proto.event_pb2", "perfkit.run.session", "perfkit.run.serving",
    "perfkit.readers.kineto.trace", "perfkit.analysis.report",
)  # fmt: skip


def _load() -> None:
    """Import what commands and workers need; run nothing of it."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from perfkit import backends, cli, kernels
    from perfkit.backends.thunder import support
    from perfkit.errors import Unavailable

    cli.application()
    kernels.catalog()
    backends.get("eager")  # looks into the files of all
    with contextlib.suppress(Unavailable):
        support.load()


def serve(path: str) -> None:
    """Fork for every request until the process that started this one ends."""
    _load()
    gc.collect()
    gc.freeze()  # a collection would touch, and so copy, all that is shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they end this process
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        os.write(1, b"ready\n")
        while True:
            waited: list[Any] = [listener, 0]
            ready, _, _ = select.select(waited, [], [])
            if listener not in ready:
                os._exit(0)
            connection, _ = listener.accept()
            if _fork() == 0:
                listener.close()
                _keep(connection)
            connection.close()


def _fork() -> int:
    """Fork; without the warning of Python 3.12 that this process has threads, which are libraries' own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(connection: socket.socket) -> None:
    """Fork the requested process; send its number and its exit code to the client."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        request, files = forked.asked(connection)
        pid = _fork()
        if pid == 0:
            connection.close()
            _become(request, files)
        for file in files:
            os.close(file)
        forked.tell(connection, pid)
        forked.tell(connection, os.waitpid(pid, 0)[1])
    except OSError:  # who asked has gone
        os._exit(1)
    finally:
        os._exit(0)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Be the process that `python -m` would have started, and end as it would."""
    code, interrupted = 1, False
    try:
        if request.get("session"):
            os.setsid()
        _surround(request, files[:3])
        RUN[request["kind"]](request["argv"], files[3:])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # as the interpreter does
        interrupted = isinstance(error, KeyboardInterrupt)
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are not daemons
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        if interrupted:  # as the interpreter does too
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(code)


def _worker(_: list[str], files: list[int]) -> None:
    from perfkit.run import serving

    sys.argv = [serving.__file__, *map(str, files)]
    serving.main()


def _cli(argv: list[str], _: list[int]) -> None:
    from perfkit import __main__, cli

    sys.argv = [__main__.__file__, *argv]
    cli.main()


def _program(argv: list[str], _: list[int]) -> None:
    """Run `python ARGV`: code, a module or a file, armed where `perfkit capture` started it, torch imported already."""
    sys.orig_argv = [sys.executable, *argv]
    if argv[0] == "-u":
        argv = argv[1:]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    sys.argv = argv if argv[0] not in ("-c", "-m") else [argv[0], *argv[2:]]
    if order := os.environ.get(VARIABLE):
        from perfkit.capture.agent import arming

        arming.arm(order)
    if argv[:2] == TORCHRUN:
        from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

        subprocess_handler.Popen = started_rank  # type: ignore[assignment]
    if argv[0] == "-m":
        sys.modules.pop(argv[1], None)  # of which runpy would warn
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = "" if argv[0] == "-c" else os.path.dirname(os.path.abspath(argv[0]))
    text = argv[1] if argv[0] == "-c" else Path(argv[0]).read_text(encoding="utf-8")
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update({} if argv[0] == "-c" else {"__file__": argv[0]})
    exec(compile(text, "<string>" if argv[0] == "-c" else argv[0], "exec"), main.__dict__)


RUN: dict[str, Callable[[list[str], list[int]], None]] = {"worker": _worker, "cli": _cli, "program": _program}


def _surround(request: dict[str, Any], files: list[int]) -> None:
    """Take the environment, folder, descriptors and random numbers of a new process."""
    import random

    import numpy

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        mode, errors = ("w", "backslashreplace" if name == "stderr" else "strict") if descriptor else ("r", "strict")
        stream = open(  # noqa: SIM115
            descriptor, mode, 1 if name == "stderr" else -1, encoding="utf-8", errors=errors, closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    random.seed()
    numpy.random.seed()
    for name, starter in STARTERS.items():
        importlib.import_module(name.rpartition(".")[0]).subprocess = starter  # type: ignore[attr-defined]
    measure_quickly()


if __name__ == "__main__":
    serve(sys.argv[1])
