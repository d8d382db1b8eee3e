"""One connection to another machine by the user's own `ssh`, so that its configuration, keys and hosts between hold.

The calls share the connection: one that the user has open and shares (ControlPath), else one of our own. What is typed
for it (a password, a second factor) is typed once. Ctrl-C reaches perfkit alone: what then happens there is said over
the connection, which therefore has to outlive it.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from perfkit.errors import PerfkitError, RunFailed, Unavailable, UsageError

FAILED = 255  # ssh's own exit code for its own failures; a command may have it too
# Defaults for options that the user's configuration does not set. A connection silent for a minute is lost.
_USUAL = {"connecttimeout": "20", "serveraliveinterval": "15"}
_PATIENCE = 10.0  # seconds
_UNSET = ("none", "0", "")


class Lost(RunFailed):
    """The connection ended (exit code 1)."""


class RemoteHost:
    """A machine, while the block lasts. Raises `Unavailable` on entering where it cannot be reached.

    `name` is what `ssh` takes: HOST, USER@HOST, an alias of the configuration, or ssh://USER@HOST:PORT.
    """

    def __init__(self, name: str) -> None:
        if not name or name.startswith("-") or any(c.isspace() for c in name):
            raise UsageError(f"{name!r} is not a host.", "Write --on user@host, as for ssh.")
        self.name = name
        self._ssh: list[str] = []
        self._master: subprocess.Popen[bytes] | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> RemoteHost:
        program = shutil.which("ssh")
        if program is None:
            raise Unavailable("ssh is missing on this machine.", "Install OpenSSH's client.")
        with contextlib.ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-")))
            self._said = stack.enter_context((scratch / "said").open("w+b"))
            given = self._configuration(program)
            options = [f"-o{name}={value}" for name, value in _USUAL.items() if given.get(name, "") in _UNSET]
            self._ssh = [program, "-T", "-oRemoteCommand=none", *options]
            if given.get("controlpath", "") in _UNSET or not self._is_connected():
                stack.callback(self._close)
                self._connect(scratch / "s")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def ask(self, command: str, given: IO[bytes] | None = None) -> bytes:
        """Return the output of `command`; `given` is its input. Raises `Lost`."""
        with self.reading(command, given) as stream:
            return stream.read()

    @contextlib.contextmanager
    def reading(self, command: str, given: IO[bytes] | None = None) -> Iterator[IO[bytes]]:
        """Give the output of `command` as a stream that ends with the block. Raises `Lost` where ssh fails, whatever
        the block raised, and `RunFailed` where the block met an `EOFError`: the command did not do what it should."""
        process = self._start(
            True, command, stdin=given or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._said
        )
        assert process.stdout is not None
        broken = None
        try:
            yield process.stdout
        except (PerfkitError, EOFError) as error:  # ssh may report the cause below
            broken = error
        except BaseException:
            process.terminate()
            raise
        finally:
            process.stdout.close()
            code = _ended(process)
        if code == FAILED:
            raise Lost(f"The connection to {self.name} ended: {self._last_said()}.") from broken
        if isinstance(broken, EOFError):
            raise RunFailed(f"{self.name} does not answer: {self._last_said()}.") from None
        if broken is not None:
            raise broken

    def run(self, command: str, interrupted: Callable[[int], None], heard: bool) -> int:
        """Run `command` with this process's streams (its input only if `heard`); the exit code, which is 255 also where
        the connection ended. `interrupted(n)` is called at the nth Ctrl-C; the third one ends the connection."""
        process = self._start(True, command, stdin=None if heard else subprocess.DEVNULL)
        presses = 0
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                presses += 1
                if presses > 2:
                    process.terminate()
                    raise
                with contextlib.suppress(PerfkitError):  # the connection may be gone, and then the program is too
                    interrupted(presses)
            except BaseException:
                process.terminate()  # nobody listens there any more, and the program is ended
                raise

    def _configuration(self, program: str) -> dict[str, str]:
        """Return the user's configuration of this host by option; {} where ssh does not print it."""
        done = subprocess.run(
            [program, "-G", "--", self.name], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        pairs = (line.partition(" ") for line in done.stdout.splitlines())
        return {name.lower(): value for name, _, value in pairs}

    def _is_connected(self) -> bool:
        done = subprocess.run([*self._ssh, "-O", "check", "--", self.name], capture_output=True, check=False)
        return done.returncode == 0

    def _connect(self, control: Path) -> None:
        """Start the master. Its command ends when this process does, however it does."""
        shared = [f"-oControlPath={control}"]
        self._master = self._start(
            False, "exec cat", "-oControlMaster=yes", "-oControlPersist=no", "-oClearAllForwardings=yes", *shared,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._said,
        )  # fmt: skip
        while not control.exists():
            if self._master.poll() is not None:
                self._unreachable()
            time.sleep(0.02)
        self._ssh += ["-oControlMaster=no", *shared]

    def _close(self) -> None:
        if self._master is not None:
            self._master.terminate()
            self._master.wait()

    def _unreachable(self) -> None:
        raise Unavailable(f"{self.name} cannot be reached: {self._last_said()}.", f"Try `ssh {self.name}` by itself.")

    def _start(self, sharing: bool, command: str, *options: str, **streams: Any) -> subprocess.Popen[bytes]:
        """Start ssh, deaf to Ctrl-C. What shares a connection hears it all the same, unless it has no terminal; what
        makes one needs the terminal, for a password."""
        words = [*self._ssh, *options, "--", self.name, command]
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return subprocess.Popen(words, start_new_session=sharing, **streams)
        finally:
            signal.signal(signal.SIGINT, before)

    def _last_said(self) -> str:
        """The last line of what ssh, or the command's shell, printed as an error."""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        said = [line.strip().rstrip(".") for line in lines if line.strip()]
        return said[-1] if said else "ssh does not say why"


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process that nobody reads from any more."""
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait()
