"""The log of tries: one line of JSON each, appended and never changed, and the changes that were tried.

    FOLDER/                   --log, PERFKIT_TRIES, else .perfkit/tries below the working directory
      tries.jsonl             a `Logged` a line, the newest last
      changes/DIGEST.patch    the difference that was tried: `git apply` takes it

Each line says on which machine it was measured. Times of different machines are never compared.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perfkit.errors import InputError, RunFailed
from perfkit.tries.results import Try
from perfkit.tries.trees import SourceChange

FILE, CHANGES = "tries.jsonl", "changes"


class Logged(msgspec.Struct, kw_only=True):
    """One try in the log. Times in ns a step; `ratio` is after over before with its 95 % interval."""

    schema: int = 1
    id: str
    created: str
    machine: str
    machine_is: str
    torch: str = ""
    command: list[str]
    change: str
    files: list[str]
    decision: str
    reason: str
    results: str
    before_ns: float | None = None
    after_ns: float | None = None
    ratio: tuple[float, float, float] | None = None


class TryHistory(msgspec.Struct, kw_only=True):
    """The tries of one command on one machine, the only ones that may be compared; `here`: on this machine."""

    machine: str
    machine_is: str
    command: list[str]
    here: bool
    tries: list[Logged]


class History(msgspec.Struct, kw_only=True):
    """A log by machine and command, those of this machine first; `damaged` lines could not be read."""

    log: str
    groups: list[TryHistory]
    damaged: int = 0


def root() -> Path:
    """The folder of the log where none is given."""
    return Path(os.environ.get("PERFKIT_TRIES") or Path(".perfkit") / "tries")


def logged(done: Try) -> Logged:
    """A try as a line of the log."""
    step = done.comparison.pairs[0].step if done.comparison else None
    found = step.judgement if step else None
    known = found and found.ratio is not None and found.low is not None and found.high is not None
    return Logged(
        id=done.id, created=done.created, machine=done.machine, machine_is=done.machine_is, torch=done.torch,
        command=done.command, change=done.change, files=done.files, decision=done.decision, reason=done.reason,
        results=done.checked.status, before_ns=step.first if step else None, after_ns=step.second if step else None,
        ratio=(found.ratio, found.low, found.high) if found and known else None,  # type: ignore[arg-type]
    )  # fmt: skip


def append(folder: Path, done: Try, change: SourceChange) -> None:
    """Add a try to the log in `folder`. Raises `RunFailed` where it cannot be written."""
    try:
        (folder / CHANGES).mkdir(parents=True, exist_ok=True)
        (folder / CHANGES / f"{change.digest}.patch").write_text(change.text)
        with open(folder / FILE, "ab") as file:
            file.write(msgspec.json.encode(logged(done)) + b"\n")  # one write: lines of two processes do not mix
    except OSError as error:
        raise RunFailed(f"{folder} cannot be written: {error.strerror}.", "Choose another --log.") from error


def read(folder: Path, machine: str) -> History:
    """The log in `folder`, by machine and command. Raises `InputError` where it is missing."""
    path = folder / FILE
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{folder} has no log of tries.", "`perfkit try` writes one; --log names it.") from error
    found, damaged = [], 0
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=Logged))
        except msgspec.MsgspecError:
            damaged += bool(line.strip())
    return History(log=str(path), groups=_groups(found, machine), damaged=damaged)


def _groups(found: Sequence[Logged], machine: str) -> list[TryHistory]:
    together: dict[tuple[str, tuple[str, ...]], list[Logged]] = {}
    for one in found:
        together.setdefault((one.machine, tuple(one.command)), []).append(one)
    groups = [
        TryHistory(machine=of, machine_is=tries[-1].machine_is, command=list(command), here=of == machine, tries=tries)
        for (of, command), tries in together.items()
    ]
    return sorted(groups, key=lambda group: not group.here)
