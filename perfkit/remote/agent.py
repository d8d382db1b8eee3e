"""Actions on the other machine once perfkit is there: prepare, run, stop, bring back; standard library only.

    ROOT ACTION RUN     as `bootstrap` starts it: do an action of a run and answer

A run's folder there holds order.json, process.json (its process group), ended.json (its exit code), and run/.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from perfkit.errors import RunFailed
from perfkit.remote import bootstrap, environment

OUT = "@OUT@"  # among a run's arguments: where its run folder goes
# A program whose user has gone is asked to end by the first; seconds later by the next, and so on.
_ENDING = ((signal.SIGINT, 30.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
_HEARD = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_DAY = 86400
_KEPT_ENGINES, _KEPT_RUNS = 3, 30 * _DAY

Order = dict[str, Any]


def main(root: Path, action: str, run: str) -> int:
    """Do one action of a run and answer, also when it cannot be done; return the exit code."""
    try:
        return _do(root, action, json.loads((root / "runs" / run / "order.json").read_text()))
    except Exception as error:  # any error must reach the user, who sits at another machine
        bootstrap.answer(bootstrap.failure(error, root))
        return 1


def _do(root: Path, action: str, order: Order) -> int:
    """The exit code of an action: of `run` the program's, whose error is kept for `fetch`: its streams are its own."""
    folder = root / "runs" / order["run"]
    if action == "run":
        return _kept(root, folder, order)
    if action == "fetch":
        _fetch(folder)
        return 0
    name, _, argument = action.partition(":")
    answer: dict[str, Any] = {}
    if name == "prepare":
        answer = {"lacking": environment.lacking(environment.folder(root), order["requirements"])}
    elif name == "install":
        place = environment.folder(root)
        environment.install(place, environment.lacking(place, order["requirements"]))
    elif name == "stop":
        _signal_group(folder, int(argument))
    elif name == "forget":
        _forget(root, folder)
    bootstrap.answer(answer)
    return 0


def _kept(root: Path, folder: Path, order: Order) -> int:
    try:
        ended: dict[str, Any] = {"code": _run(root, folder, order)}
    except Exception as error:  # `fetch` reports it
        ended = {"code": 1, **bootstrap.failure(error, root)}
    bootstrap.write(folder / "ended.json", ended)
    return int(ended["code"])


def _run(root: Path, folder: Path, order: Order) -> int:
    """Run perfkit as ordered until it ends, or until nobody listens; return its exit code."""
    base, place = root / "work" / order["work"], environment.folder(root)
    with bootstrap.lock(base, fcntl.LOCK_SH):
        if bootstrap.sent(base)["token"] != order["token"]:
            raise RunFailed("Another run from the same folder came in between.", "Run it again.")
        for number in _HEARD:
            signal.signal(number, signal.SIG_IGN)
        arguments = [str(folder / "run") if word == OUT else word for word in order["arguments"]]
        process = subprocess.Popen(
            [environment.python(place), "-m", "perfkit", *arguments],
            cwd=base,
            env={**environment.variables(place, root / "engine" / order["engine"]), **order["variables"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_hear,
        )
        bootstrap.write(folder / "process.json", process.pid)
        return _attend(process, folder)


def _hear() -> None:
    """Signals that the agent does not hear, its child does."""
    for number in _HEARD:
        signal.signal(number, signal.SIG_DFL)


def _attend(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Pass on what `process` prints until it ends; end it when nobody listens any more."""
    silent = threading.Event()
    assert process.stdout and process.stderr
    pumps = [
        threading.Thread(target=_pump, args=(stream, number, silent), daemon=True)
        for stream, number in ((process.stdout, 1), (process.stderr, 2))
    ]
    for pump in pumps:
        pump.start()
    while process.poll() is None:
        if silent.is_set() or _hung_up():
            _end(process, folder)
        time.sleep(0.05)
    for pump in pumps:  # a child that outlived the program may hold its streams open
        pump.join(timeout=2)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _pump(stream: IO[bytes], number: int, silent: threading.Event) -> None:
    """Pass on what comes; when nobody takes it, read on, since a full pipe would hold the program up."""
    while data := os.read(stream.fileno(), 65536):
        while data and not silent.is_set():
            try:
                data = data[os.write(number, data) :]
            except OSError:
                silent.set()


def _hung_up() -> bool:
    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    for number, seconds in _ENDING:
        _signal_group(folder, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def _signal_group(folder: Path, number: int) -> None:
    """Signal a run; of interrupts only the first, since perfkit then makes a run folder of what was recorded."""
    with contextlib.suppress(OSError, ValueError):
        if number == signal.SIGINT:
            (folder / "interrupted").touch(exist_ok=False)
        os.killpg(int((folder / "process.json").read_text()), number)


def _fetch(folder: Path) -> None:
    """Answer how the run ended and what it left; then its run folder as a tar."""
    made = [path for path in sorted((folder / "run").rglob("*")) if path.is_file()]
    ended = folder / "ended.json"
    ended_with = json.loads(ended.read_text()) if ended.is_file() else {"code": None}
    bootstrap.answer({**ended_with, "files": len(made), "bytes": sum(path.stat().st_size for path in made)})
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as packed:
        for path in made:
            packed.add(path, path.relative_to(folder / "run").as_posix(), recursive=False)
    sys.stdout.flush()


def _forget(root: Path, folder: Path) -> None:
    """Remove a run that has been brought back, runs that nobody brought for a month, and other versions of perfkit that
    nobody used for a day."""
    shutil.rmtree(folder, ignore_errors=True)
    for lost in (root / "runs").iterdir():
        if time.time() - lost.stat().st_mtime > _KEPT_RUNS:
            shutil.rmtree(lost, ignore_errors=True)
    engines = sorted((root / "engine").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in engines[_KEPT_ENGINES:]:
        if time.time() - old.stat().st_mtime > _DAY:
            shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
