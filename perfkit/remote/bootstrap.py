"""The file that is sent to the other machine first. It needs only the standard library of Python 3.11 or newer.

    python bootstrap.py ACTION [ARGUMENT]

An answer is a line `MARK` and a line of JSON, after whatever a shell printed before; a failure is `{"error", "hint"}`.
This file receives; for other actions the perfkit that was received takes over this process (agent.py).

Beside this file lie: engine/ (perfkit, a folder a version), env/ (the environments that run it), work/ (the users'
files, a folder for each of theirs) and runs/ (a folder a run, until it has been brought back).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

MARK = "perfkit-answer"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Refusal(Exception):
    """An action that is impossible here: `message` is a sentence, `hint` the next step."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def fingerprint(path: Path) -> str:
    """Return a file's identity: "l:TARGET" of a link, else its SHA-256 and whether it is executable; "" for neither."""
    if path.is_symlink():
        return f"l:{os.readlink(path)}"
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{'x' if os.access(path, os.X_OK) else '-'}:{digest}"


def need(root: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return whether the engine is here, and which of the wanted files are missing or differ."""
    base = root / "work" / wanted["work"]
    files = [path for path, is_ in wanted["files"].items() if fingerprint(base / path) != is_]
    return {"engine": (root / "engine" / wanted["engine"]).is_dir(), "files": files}


def receive(root: Path, stream: IO[bytes]) -> dict[str, Any]:
    """Unpack order.json, the files that were lacking, and perfkit. Files that were sent before and are gone there go
    here too; what a program made stays."""
    with tarfile.open(fileobj=stream, mode="r|gz") as packed:
        members = iter(packed)
        order = json.load(_content(packed, next(members)))
        base, engine = root / "work" / order["work"], root / "engine" / order["engine"]
        base.mkdir(parents=True, exist_ok=True)
        with lock(base, fcntl.LOCK_EX):
            before = set(sent(base)["files"])
            write(_list(base), {"files": sorted(before | set(order["files"])), "token": ""})  # until it holds again
            _unpack(packed, members, base, engine)
            for path in before - set(order["files"]):
                with contextlib.suppress(OSError):
                    (base / path).unlink()
            write(_list(base), {"files": order["files"], "token": order["token"]})
    os.utime(engine)
    run = root / "runs" / order["run"]
    run.mkdir(parents=True, exist_ok=True)
    write(run / "order.json", order)
    return {}


def sent(base: Path) -> dict[str, Any]:
    """The files that were sent into a work folder last, and the token of what they are."""
    found: dict[str, Any] = json.loads(_list(base).read_text()) if _list(base).is_file() else {"files": [], "token": ""}
    return found


def _list(base: Path) -> Path:
    return base.parent / "sent.json"


def _unpack(packed: tarfile.TarFile, members: Iterator[tarfile.TarInfo], base: Path, engine: Path) -> None:
    """Write `members`: those below files/ into `base`, those below engine/ into `engine` when they are whole."""
    partial = engine.with_name(f".{engine.name}.{os.getpid()}")
    try:
        for member in members:
            kind, _, name = member.name.partition("/")
            place = _below(base if kind == "files" else partial, name)
            if member.issym():
                place.unlink(missing_ok=True)
                place.symlink_to(member.linkname)
            else:
                _copy(_content(packed, member), place, member.mode)
        if partial.is_dir() and not engine.is_dir():
            partial.rename(engine)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _below(base: Path, name: str) -> Path:
    """The path of a member, with folders to hold it; whatever is in the way was sent before, or is a link."""
    *folders, last = PurePosixPath(name).parts
    if ".." in (*folders, last) or name.startswith("/"):
        raise Refusal(f"{name} lies outside the folder that is sent.")
    base.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        base /= folder
        if base.is_symlink() or base.is_file():
            base.unlink()
        base.mkdir(exist_ok=True)
    if (base / last).is_dir() and not (base / last).is_symlink():
        shutil.rmtree(base / last)
    return base / last


def _content(packed: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    found = packed.extractfile(member)
    if found is None:
        raise Refusal(f"{member.name} is not a file.")
    return found


def _copy(source: IO[bytes], place: Path, mode: int) -> None:
    partial = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            shutil.copyfileobj(source, file)
        partial.chmod(0o755 if mode & 0o100 else 0o644)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def lock(base: Path, kind: int) -> Iterator[None]:
    """Hold a work folder: alone (LOCK_EX) to change its files, with others (LOCK_SH) to run in it."""
    with (base.parent / "lock").open("a") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError:
            raise Refusal("A run from the same folder has not ended there.", "Wait for it, or end it.") from None
        yield


def write(path: Path, content: Any) -> None:
    """Write JSON whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(content))
    partial.replace(path)


def answer(content: Any) -> None:
    """Tell the caller something."""
    sys.stdout.write(f"\n{MARK}\n{json.dumps(content)}\n")
    sys.stdout.flush()


# Run the received perfkit: its folder is searched first, but not by the programs that it starts.
_AGENT = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('perfkit.remote.agent', None, '__main__')"
)


def failure(error: Exception, root: Path) -> dict[str, str]:
    """Return the answer that reports an error."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return {"error": f"The disk that holds {root} is full.", "hint": "Free space there."}
    if isinstance(error, OSError):
        return {"error": f"{error.filename or root}: {error.strerror or error}.", "hint": ""}
    said = getattr(error, "message", f"{type(error).__name__}: {error}.")
    return {"error": said, "hint": getattr(error, "hint", "")}


def main(action: str, argument: str = "") -> int:
    """Do one action and answer; return the exit code."""
    root = Path(__file__).resolve().parent
    try:
        if action == "need":
            answer(need(root, json.load(sys.stdin.buffer)))
        elif action == "receive":
            answer(receive(root, sys.stdin.buffer))
        else:
            order = json.loads((root / "runs" / argument / "order.json").read_text())
            engine = root / "engine" / order["engine"]
            os.execv(sys.executable, [sys.executable, "-P", "-c", _AGENT, str(engine), str(root), action, argument])
    except Exception as error:  # any error must reach the user, who sits at another machine
        answer(failure(error, root))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
