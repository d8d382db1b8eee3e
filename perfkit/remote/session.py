"""The whole way of a run from afar: connect, send, run, bring back. Nothing here changes until all of it is here."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from perfkit.capture import folders
from perfkit.errors import PerfkitError, RunFailed
from perfkit.remote import calls, files
from perfkit.remote.ssh import FAILED, Lost, RemoteHost
from perfkit.run_folder import MANIFEST, read_manifest, stamp, write_manifest

Say = Callable[[str, str], None]
_AGAIN, _TRIES = 1.0, 40  # seconds between tries, and tries, while a program ends whose connection was lost
_ENDED = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class RemoteCommand:
    """Work for another machine: perfkit's `arguments` there, among which `agent.OUT` is the run folder.

    `python` is the Python to use there ("": the first of its PATH that fits); with `heard` the program has our input.
    """

    host: str
    arguments: Sequence[str]
    out: Path
    overwrite: bool = False
    python: str = ""
    heard: bool = False


def do(work: RemoteCommand, say: Say) -> tuple[int, bool]:
    """Do `work`; perfkit's exit code there, and whether there is a run folder at `work.out` now.

    Raises `UsageError` for a folder that must not be made, before anything is done; `Unavailable` for a machine that
    cannot be reached, or lacks what perfkit needs; `RunFailed` where the connection ended, or a disk was full.
    """
    folders.check_out(work.out, work.overwrite)
    wanted = files.working(Path.cwd())
    with _ending(), RemoteHost(work.host) as host:
        say(work.host, "connected")
        place = calls.find(host, work.python)
        run = f"{stamp()}-{secrets.token_hex(3)}"
        _send(place, run, work, wanted, say)
        say(work.host, f"running with {place.python}")
        code = place.run(run, work.heard)
        return _bring(place, run, work, code, say)


def _send(place: calls.RemoteCalls, run: str, work: RemoteCommand, wanted: Mapping[str, str], say: Say) -> None:
    """Send the files that are lacking there, perfkit and the order; then make the environment."""
    here, engine = Path.cwd(), files.engine()
    digest, name = files.digest(engine), _name_of(here)
    lacking = place.need({"work": name, "engine": digest, "files": wanted})
    members = {f"files/{path}": here / path for path in lacking["files"]}
    members |= {} if lacking["engine"] else {f"engine/{path}": file for path, file in engine.items()}
    order = {
        "run": run,
        "work": name,
        "engine": digest,
        "files": list(wanted),
        "token": hashlib.sha256(repr(sorted(wanted.items())).encode()).hexdigest(),
        "arguments": list(work.arguments),
        "requirements": files.requirements(),
        "variables": {"PYTHONUNBUFFERED": "1"} if sys.stdout.isatty() else {},
    }
    say(work.host, f"sending {len(lacking['files'])} of {len(wanted)} files of this folder"
        f"{'' if lacking['engine'] else ', and perfkit'}")  # fmt: skip
    place.receive(order, members)
    missing = place.prepare(run)
    if missing:
        say(work.host, f"installing {', '.join(missing)}")
        place.install(run)


def _bring(place: calls.RemoteCalls, run: str, work: RemoteCommand, code: int, say: Say) -> tuple[int, bool]:
    """Bring the run folder here, whole or not at all, and remove it there. `code` is what ssh ended with."""
    lost = f"The connection to {work.host} ended while the program ran"
    where = f"{work.host}:{place.folder}/runs/{run}"
    try:
        with folders.made(work.out) as folder:
            ended = _fetched(place, run, folder, code)
            if not (folder / MANIFEST).is_file():
                raise _Nothing
            _sign(folder)
    except _Nothing:
        place.forget(run)
        if code != ended.code:
            raise Lost(f"{lost}. Nothing had been recorded; nothing here was changed.", "Run it again.") from None
        return code or 1, False
    except Lost as error:
        raise Lost(
            f"{error.message} Nothing here was changed. What was recorded, if anything, stays in {where}.",
            f"Run it again, or bring it: `scp -r {where}/run {work.out}`.",
        ) from error
    except OSError as error:
        raise RunFailed(
            f"{work.out} cannot be written: {error.strerror}. The run is in {where}/run.",
            f"Free space, then `scp -r {where}/run {work.out}`.",
        ) from error
    with contextlib.suppress(PerfkitError):  # all that matters is here
        place.forget(run)
    if code != ended.code:
        say(work.host, f"{lost}; what was recorded until then is here.")
    return (code if code == ended.code else 1), True


class _Nothing(Exception):
    """The run folder is missing; perfkit there said why."""


def _fetched(place: calls.RemoteCalls, run: str, folder: Path, code: int) -> calls.RemoteResult:
    """Bring what a run left into `folder`; where the connection ended, over a new one, when the program has ended."""
    ended = place.fetch(run, folder)
    if ended.code is None and code != FAILED:
        raise RunFailed(f"What ran on {place.host.name} was killed there (exit code {code}).", "Its log may say why.")
    for _ in range(_TRIES):
        if ended.code is not None:
            return ended
        place.stop(run, signal.SIGINT)  # in case the other side has not noticed
        time.sleep(_AGAIN)
        ended = place.fetch(run, folder)  # of a run that goes on: nothing
    raise Lost(f"The connection to {place.host.name} ended while the program ran.")


def _sign(folder: Path) -> None:
    """Write the command that was typed here into the manifest."""
    manifest = read_manifest(folder)
    manifest.command = ["perfkit", *sys.argv[1:]]
    write_manifest(folder, manifest)


def _name_of(folder: Path) -> str:
    """The name there of a working folder here: its own, below one that is this machine's and this path's."""
    key = hashlib.sha256(f"{platform.node()}:{folder}".encode()).hexdigest()[:12]
    return f"{key}/{folder.name or 'root'}"


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Make a request to end leave the block as Ctrl-C does, so that the program on the other machine ends too."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in _ENDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
