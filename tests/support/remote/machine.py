"""Another machine: an sshd of our own on the loopback, with keys, a home and a PATH of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfkit.cache import cache_dir

NAME = "gpu-box"  # as the user's configuration of ssh calls it
SERVER = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
ForceCommand {folder}/session
"""
CLIENT = """
Host {name} {name}-off
  HostName 127.0.0.1
  User {user}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking accept-new
Host {name}
  Port {port}
Host {name}-off
  Port {closed}
"""
# The login there; a test chooses its `mode`.
SESSION = """#!/bin/sh
export HOME={folder}/home PERFKIT_CACHE={folder}/cache PATH={folder}/there:$PATH OMP_NUM_THREADS=1
. {folder}/mode
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


@dataclass
class Machine:
    """The other machine; `env` are the variables of a perfkit here whose `ssh` knows it."""

    folder: Path
    server: subprocess.Popen[bytes]
    env: dict[str, str]
    name: str = NAME

    @property
    def place(self) -> Path:
        """Return perfkit's folder there."""
        return self.folder / "cache" / "remote"

    @contextlib.contextmanager
    def being(self, mode: str) -> Iterator[None]:
        """Every session begins with these lines of sh."""
        (self.folder / "mode").write_text(mode)
        try:
            yield
        finally:
            (self.folder / "mode").write_text("")

    def hang_up(self) -> None:
        """End all connections, as a network does that goes away."""
        for process in children(self.server.pid):
            with contextlib.suppress(ProcessLookupError):
                for below in children(process):
                    if (Path("/proc") / str(below) / "comm").read_text().startswith("sshd"):
                        os.kill(below, signal.SIGKILL)
                os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        """Switch it off."""
        self.hang_up()
        self.server.terminate()
        self.server.wait()

    def left(self) -> list[str]:
        """The runs that lie there still."""
        runs = self.place / "runs"
        return sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []


def children(process: int) -> list[int]:
    """The processes that a process started and that live."""
    return [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _prepare(folder: Path, port: int) -> dict[str, str]:
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "server").write_text(SERVER.format(folder=folder, port=port))
    (folder / "client").write_text(CLIENT.format(folder=folder, port=port, closed=_free_port(), name=NAME, user=user))
    (folder / "mode").write_text("")
    _script(folder / "session", SESSION.format(folder=folder))
    _script(folder / "there" / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    _script(folder / "here" / "ssh", f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/client "$@"\n')
    for name in ("home", "cache"):
        (folder / name).mkdir()
    for name in ("ceilings", "programs"):  # measured and compiled once for all tests
        (cache_dir() / name).mkdir(parents=True, exist_ok=True)
        (folder / "cache" / name).symlink_to(cache_dir() / name)
    return {"PATH": f"{folder}/here:{os.environ['PATH']}"}


def started(folder: Path) -> Machine:
    """Start the machine. Skips without sshd."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None:
        pytest.skip("no sshd on this machine (Debian: apt install openssh-server)")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of root locks up what has not logged in
    port = _free_port()
    env = _prepare(folder, port)
    log = (folder / "log").open("wb")
    server = subprocess.Popen([sshd, "-D", "-e", "-f", folder / "server"], stdout=log, stderr=log)
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return Machine(folder, server, env)
        time.sleep(0.05)
    raise AssertionError((folder / "log").read_text())


def main() -> int:
    """Run the command in the arguments with such a machine at hand; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="perfkit-machine-") as folder:
        machine = started(Path(folder))
        try:
            return subprocess.call(sys.argv[1:], env={**os.environ, **machine.env})
        finally:
            machine.stop()


if __name__ == "__main__":
    sys.exit(main())
