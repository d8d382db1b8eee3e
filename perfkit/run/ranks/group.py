"""One backend in several processes, one a rank: the parent's side. To the session a group is like a `Child`.

torchrun (`torch.distributed.run`) starts the ranks, here and on other hosts, and ends all when one of them dies. Each
rank connects back to this process (`perfkit.run.ranks.rank`), which gives all of them the same commands.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

from perfkit.backends.parallel.ranks import TIMEOUT
from perfkit.errors import PerfkitError, RunFailed
from perfkit.run.child import Child, rebuilt, search_path
from perfkit.run.ranks import files, merging
from perfkit.run.ranks.hosts import threads, torchrun
from perfkit.run.ranks.rank import ADDRESS, KEY, LOGS
from perfkit.run.ranks.rendezvous import Rendezvous
from perfkit.run_folder import RankRun, Settings

_POLL = 0.2  # seconds
# A rank that fails because another one is gone says so a little earlier or later than the one that failed by itself.
_GRACE = 3.0
_GONE = re.compile(r"(?i)connection (closed|reset|was)|by peer|NCCL|gloo|timed? ?out|DistBackendError|socket")
_EXIT = re.compile(r"exitcode\s*:\s*(-?\d+)\)? (?:local_rank: (\d+) )?\(pid: (\d+)\)")


@dataclass
class _Rank:
    number: int
    host: str
    pid: int
    pipe: Connection
    done: bool = False
    result: Any = None


class RankProcesses:
    """Worker processes of one backend, started on construction; `call` runs a command in all of them.

    Use as a context manager: leaving it ends the processes.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        log: Path,
        environment: Mapping[str, str],
        progress: Callable[[str], None],
        rendezvous: Rendezvous | None = None,
        index: int = 0,
    ) -> None:
        self.name, self._settings, self._log, self._progress = name, settings, log, progress
        self._command = ""
        self._members: list[_Rank] = []
        self._unstarted: PerfkitError | None = None  # why the ranks never came
        self.ranks: list[RankRun] = []  # what each rank measured so far
        log.parent.mkdir(parents=True, exist_ok=True)
        key = secrets.token_bytes(32)
        self._rendezvous, self._index = rendezvous, index
        bound, host = ("", rendezvous.meeting.host) if rendezvous else ("localhost", "localhost")
        self._listener = Listener((bound, 0), backlog=settings.ranks, authkey=key)
        address = f"{host}:{self._listener.address[1]}"
        own = {ADDRESS: address, KEY: key.hex(), LOGS: str(log.parent.resolve())}
        with open(log, "ab") as output:
            self._agent = subprocess.Popen(
                torchrun(settings, rendezvous.meeting.options(index) if rendezvous else ()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **search_path(), **threads(settings), **environment, **own},
                start_new_session=True,  # Ctrl-C is the session's to handle
            )
        if rendezvous:
            rendezvous.begin(index)
        self._arriving: queue.Queue[Connection] = queue.Queue()
        threading.Thread(target=self._accept, daemon=True).start()

    def call(self, command: str, **arguments: Any) -> Any:
        """Run a command in every rank, and return what the ranks' results make together (`merging`).

        Raises what a rank raised, and `RunFailed` with the cause when one died; then the others are ended.
        """
        self.begin(command, **arguments)
        return self.result()

    def begin(self, command: str, **arguments: Any) -> None:
        """Start a command in every rank; `result` waits for it."""
        self._command = command
        try:
            self._gather()
        except PerfkitError as error:
            self._unstarted = error
        for member in self._members:
            member.done = False
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died: `result` says so
                member.pipe.send((command, arguments))

    def result(self) -> Any:
        """The result of the command that `begin` started; raises as `call` does."""
        if self._unstarted is not None:
            raise self._unstarted
        first_done = None
        while waiting := [m for m in self._members if not m.done]:
            for pipe in wait([m.pipe for m in waiting], timeout=_POLL):
                self._hear(next(m for m in waiting if m.pipe is pipe))
            if first_done is None and any(m.done for m in self._members):
                first_done = time.monotonic()
            if first_done is not None and time.monotonic() - first_done > TIMEOUT:
                late = next(m for m in self._members if not m.done)
                self.kill()
                raise RunFailed(f"Rank {late.number} did not finish within {TIMEOUT:.0f} s of the others.")
        results = [m.result for m in self._members]
        files.keep(self._log.parent, results)
        merging.keep(self.ranks, self._command, results)
        return merging.merged(self._command, results)

    def close(self) -> None:
        """Let the ranks go, and wait until torchrun has seen them end."""
        for member in self._members:
            member.pipe.close()
        self._listener.close()
        try:
            self._agent.wait(timeout=5 if self._members else 0)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the ranks of this host and torchrun, which ends those of the others."""
        for member in self._members:
            if member.host == socket.gethostname():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)
        self._agent.terminate()
        try:
            self._agent.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()

    def __enter__(self) -> RankProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        if sys.exc_info()[0] is not None:
            self.kill()
        self.close()

    # ---- how ranks arrive, answer and fail ---------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                try:
                    self._arriving.put(self._listener.accept())
                except (EOFError, ConnectionResetError, AuthenticationError):
                    continue  # a stranger at the door

    def _gather(self) -> None:
        """Wait until all ranks have connected, where they have not yet."""
        if self._members:
            return
        self._progress(f"starting {self._settings.ranks} ranks")
        members: list[_Rank] = []
        while len(members) < self._settings.ranks:
            try:
                pipe = self._arriving.get(timeout=_POLL)
            except queue.Empty:
                if self._agent.poll() is not None:
                    raise RunFailed(f"{self.name}'s ranks did not start.", self._last_words(self._log)) from None
                if self._rendezvous and (trouble := self._rendezvous.trouble(self._index)):
                    raise RunFailed(f"{trouble} before {self.name}'s ranks came.", "Its own output says why.") from None
                continue
            number, host, pid = pipe.recv()
            members.append(_Rank(number, host, pid, pipe))
        self._members = sorted(members, key=lambda m: m.number)
        self.ranks = [RankRun(rank=m.number, host=m.host, device=self._device(m.number)) for m in self._members]

    def _device(self, rank: int) -> str:
        each = self._settings.ranks // self._settings.hosts
        return "cpu" if self._settings.device == "cpu" else f"cuda:{rank % each}"

    def _hear(self, member: _Rank) -> None:
        """One message of a rank. Raises what it failed of, once the others are ended."""
        try:
            kind, value = member.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._fail(member, None)
        if kind == "done":
            member.done, member.result = True, value
        elif kind == "error":
            self._fail(member, rebuilt(*value))
        elif member.number == 0:
            self._progress(value)

    def _fail(self, member: _Rank, error: PerfkitError | None) -> None:
        """Raise the failure of the rank at which it began."""
        if error is not None and _GONE.search(error.message):
            member, error = self._earlier(member, error)
        if error is None:
            error = RunFailed(f"The process of rank {member.number} {self._death(member)}.", self._words_of(member))
            self.kill()
            raise error
        self.kill()
        raise type(error)(f"Rank {member.number}: {error.message}", error.hint)

    def _earlier(self, member: _Rank, error: PerfkitError) -> tuple[_Rank, PerfkitError | None]:
        """Return the rank whose failure left `member` without a partner, where one reports it soon; else `member`."""
        until = time.monotonic() + _GRACE
        others = [m for m in self._members if m is not member and not m.done]
        while others and (left := until - time.monotonic()) > 0:
            for pipe in wait([m.pipe for m in others], timeout=left):
                other = next(m for m in others if m.pipe is pipe)
                try:
                    kind, value = other.pipe.recv()
                except (EOFError, ConnectionResetError):
                    return other, None
                if kind == "error" and not _GONE.search(value[1]):
                    return other, rebuilt(*value)
                if kind != "progress":
                    others.remove(other)
        return member, error

    def _death(self, member: _Rank) -> str:
        """How a rank's process ended, which torchrun saw."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._agent.wait(timeout=10)
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        codes = {int(pid): int(code) for code, _, pid in _EXIT.findall(text)}
        code = codes.get(member.pid)
        if code is None:
            return "ended early"
        if code >= 0:
            return f"ended early with exit code {code}"
        name = signal.Signals(-code).name
        cause = ": it was probably killed for using too much memory" if name == "SIGKILL" else ""
        return f"died with {name}{cause}"

    def _words_of(self, member: _Rank) -> str:
        return self._last_words(self._log.with_name(f"rank{member.number}.{self._log.name}"))

    def _last_words(self, log: Path) -> str:
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return f"Its last words: {lines[-1][:200]}" if lines else ""


def processes(
    name: str,
    settings: Settings,
    log: Path,
    environment: Mapping[str, str],
    progress: Callable[[str], None],
    rendezvous: Rendezvous | None = None,
    index: int = 0,
) -> Child | RankProcesses:
    """A backend's process, or one for each of its ranks, which on several hosts meet as backend number `index`."""
    if not settings.in_group:
        return Child(name, log, environment, progress)
    return RankProcesses(name, settings, log, environment, progress, rendezvous, index)
