"""Processes that need not import torch: a server that has it loaded forks one for each command, worker and program.

`python -m perfkit …` imports torch for 2.5 s, and its compilers for 7 s more; nearly a thousand tests start one. The
server imports once and runs nothing, so a forked process is as fresh as a new one. A process whose imports themselves
are tested, or that needs other settings of torch's libraries, is started the usual way.

    Server       started by the tests' process, ends with it; pytest's workers share one where they run all tests
    Forked       a forked process, used like `subprocess.Popen`
    tests/support/forking.py  the server
    tests/support/forked.py   the `perfkit` of a shell: `python forked.py SOCKET ARGS`
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from tests.support import forked

ROOT = Path(__file__).resolve().parents[2]
SOCKET = "PERFKIT_TEST_FORKS"  # the environment variable that names the server's socket
SESSION = "PERFKIT_TEST_SESSION_FORKS"  # the same for pytest's workers, of the server that they share
LOADING_S = 300
AT_START = dict(os.environ)  # before a test changes it
WORKER = "perfkit.run.serving"
STARTUP = str(ROOT / "perfkit" / "capture" / "agent" / "startup")  # where a captured program finds what arms it
TORCHRUN = ["-m", "torch.distributed.run"]
# Read when torch and its libraries are loaded: where one differs from the server's, a fork would not be the same.
READ_AT_IMPORT = (
    "TRITON_INTERPRET",
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "LD_",
    "TORCH_",
    "PYTORCH_",
    "PYTHONHASHSEED",
    "CUDA_VISIBLE",
)
NOT_READ = {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}  # which torchrun gives its ranks: of GPUs alone


class Server:
    """The server's process. It ends when this process does, at the latest: it notices that its stdin was closed."""

    def __init__(self, wait: bool = True) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="perfkit-forks-")
        self.path = str(Path(self.folder.name) / "socket")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking", self.path],
            cwd=ROOT,
            env={**AT_START, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None and (not wait or self.process.stdout.readline() == b"ready\n")

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()

    def cpu_s(self) -> float:
        """Seconds of CPU time of the processes that it forked and that have ended."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


class Shared:
    """The server that the process of the session started for all of pytest's workers."""

    def __init__(self, path: str) -> None:
        self.path = path
        until = time.monotonic() + LOADING_S
        while not os.path.exists(path):  # it has loaded then
            assert time.monotonic() < until, "the server that forks processes for tests did not start"
            time.sleep(0.05)

    def close(self) -> None:
        pass

    def cpu_s(self) -> float:
        return 0.0


class Forked:
    """A process of the server `path`; of `subprocess.Popen` it has what perfkit and torchrun use.

    `kind` is "cli", "worker" or "program" (`argv` is then what follows `python`). `files` are its stdin, stdout, stderr
    and the descriptors that it inherits besides. With `session` it leads a session of its own, which may be killed.
    """

    def __init__(
        self, path: str, kind: str, argv: Sequence[str], files: Sequence[int], cwd: str, env: Mapping[str, str],
        session: bool = False,
    ) -> None:  # fmt: skip
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        request = {"kind": kind, "argv": [*argv], "cwd": cwd, "env": {**env}, "session": session}
        self._connection = forked.ask(path, request, files)
        self.pid = forked.number(self._connection)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = forked.number(self._connection)
            except TimeoutError:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0) from None
            self.returncode = os.waitstatus_to_exitcode(status)
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(1e-6)
        return None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def usable(env: Mapping[str, str]) -> bool:
    """Return whether a process with this environment may be forked: it finds the same modules, and torch reads the
    same."""
    names = {n for n in (*env, *AT_START) if n.startswith(READ_AT_IMPORT)} - NOT_READ
    same = all(env.get(n) == AT_START.get(n) for n in names)
    return same and set(env.get("PYTHONPATH", "").split(os.pathsep)) <= {"", str(ROOT)}


_servers: list[Server | Shared] = []  # of this process: one, once it is wanted


def server() -> Server | Shared:
    """The server of the session, or one of this process, started when it is first asked for."""
    if not _servers:
        given = os.environ.get(SESSION)
        _servers.append(Shared(given) if given else Server())
    return _servers[0]


def share_server() -> None:
    """Start a server for the processes that this one starts; it loads meanwhile."""
    started = Server(wait=False)
    _servers.append(started)
    os.environ[SESSION] = started.path


def close_server() -> None:
    """End the server, if there is one."""
    while _servers:
        _servers.pop().close()


def cpu_s() -> float:
    """Seconds of CPU time of the processes that this process's server forked and that have ended."""
    return sum(s.cpu_s() for s in _servers)


def started_forked(args: list[str], out: int, error: int, cwd: str, env: dict[str, str]) -> Forked:
    """`perfkit ARGS` as a fork, with `out` and `error` as its stdout and stderr."""
    path = server().path
    with open(os.devnull, "rb") as nothing:
        return Forked(path, "cli", args, [nothing.fileno(), out, error], cwd, env | {SOCKET: path})


def started_fresh(args: list[str], out: int, error: int, cwd: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """The same in a new interpreter."""
    command = [sys.executable, "-m", "perfkit", *args]
    return subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=error)


def started(
    command: Sequence[str], *, stdin: int, stdout: IO[Any], stderr: IO[Any], pass_fds: Sequence[int], env: Any,
    cwd: Path | None,
) -> Any:  # fmt: skip
    """In the place of `subprocess.Popen` in `perfkit.run.child`: workers are forked where they may be."""
    if command[1:3] != ["-m", WORKER] or not usable(env):
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds, env=env, cwd=cwd)
    path = env.get(SOCKET) or server().path
    with open(os.devnull, "rb") as nothing:
        files = [nothing.fileno(), stdout.fileno(), stderr.fileno(), *pass_fds]
        return Forked(path, "worker", [], files, str(cwd or os.getcwd()), {**env, SOCKET: path})


def started_ranks(command: Sequence[str], *, env: Any = None, **more: Any) -> Any:
    """In the place of `subprocess.Popen` where torchrun is started: it and its ranks are forks where they may be."""
    given = dict(os.environ if env is None else env)
    if list(command[1:3]) != TORCHRUN or not _plain(command, given):
        return subprocess.Popen(command, env=env, **more)
    path = given.get(SOCKET) or server().path
    return _redirected(path, list(command[1:]), {**given, SOCKET: path}, **more)


def started_rank(args: Sequence[str], env: Mapping[str, str], **more: Any) -> Any:
    """In the place of `subprocess.Popen` in torchrun, itself a fork."""
    if not _plain([args[0], *args[2:]], env):  # without `-u`
        return subprocess.Popen(args, env=env, **more)
    return _redirected(env[SOCKET], list(args[1:]), env, **more)


def _redirected(
    path: str, argv: Sequence[str], env: Mapping[str, str], *, stdin: Any = None, stdout: Any = None,
    stderr: Any = None, encoding: str = "utf-8", start_new_session: bool = False,
) -> Forked:  # fmt: skip
    """`python ARGV` as a fork, with such files as `subprocess.Popen` takes."""
    with contextlib.ExitStack() as opened:
        nothing = opened.enter_context(open(os.devnull, "r+b"))
        ours, theirs = (
            opened.enter_context(open(end, mode)) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )
        meant = {subprocess.DEVNULL: nothing, subprocess.PIPE: theirs}
        files = [meant.get(file, i if file is None else file) for i, file in enumerate((stdin, stdout, stderr))]
        numbers = [file if isinstance(file, int) else file.fileno() for file in files]
        process = Forked(path, "program", argv, numbers, os.getcwd(), env, start_new_session)
        if stdout == subprocess.PIPE:
            process.stdout = open(os.dup(ours.fileno()), encoding=encoding)  # noqa: SIM115
    return process


POPEN = SimpleNamespace(Popen=started, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
RANKS = SimpleNamespace(
    Popen=started_ranks, DEVNULL=subprocess.DEVNULL, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
)
STARTERS = {  # of processes, by the name that each has for the module `subprocess`
    "perfkit.run.child.subprocess": POPEN,
    "perfkit.run.ranks.group.subprocess": RANKS,
    "perfkit.run.ranks.hosts.subprocess": RANKS,
    "perfkit.hardware.subprocesses.subprocess": RANKS,
}


def _plain(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a command with this environment is `python` with a file, code or a module, and may be a fork."""
    seen = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path != STARTUP]
    known = command[0] == sys.executable and (command[1] in ("-c", "-m") or command[1].endswith(".py"))
    return known and usable({**env, "PYTHONPATH": os.pathsep.join(seen)})


def started_program(command: Sequence[str], *, env: Mapping[str, str]) -> Any:
    """In the place of `subprocess.Popen` in `perfkit.capture.launched`: `python FILE` and `python -c CODE` are forked,
    with torch imported already, where they may be."""
    if command[1:2] == ["-m"] or not _plain(command, env):
        return subprocess.Popen(command, env=env)
    return Forked(server().path, "program", command[1:], [0, 1, 2], os.getcwd(), env)


def run(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with the texts that were printed; `python -c`, `-m` or a file is a fork where it may be one."""
    given = dict(os.environ if env is None else env)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error, open(os.devnull, "rb") as nothing:
        files = [nothing.fileno(), out.fileno(), error.fileno()]
        if _plain(command, given):
            given[SOCKET] = server().path
            process: Any = Forked(given[SOCKET], "program", command[1:], files, str(cwd or os.getcwd()), given)
        else:
            process = subprocess.Popen(command, cwd=cwd, env=given, stdin=nothing, stdout=out, stderr=error)
        try:
            process.wait(timeout)
        finally:
            process.kill()
        texts = [whole(file) for file in (out, error)]
    return subprocess.CompletedProcess(list(command), int(process.returncode or 0), *texts)


def whole(file: IO[bytes]) -> str:
    """The text of a file from its beginning."""
    file.seek(0)
    return file.read().decode()
