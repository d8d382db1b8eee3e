"""The backends of a run while it goes on: each its record, its process, and what became of what it was asked to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from perfkit.errors import OutOfMemory, PerfkitError
from perfkit.run.child import Child
from perfkit.run.ranks.group import RankProcesses
from perfkit.run_folder import BackendRun

LOG = "log.txt"

Progress = Callable[[str, str], None]  # of which backend, and what is being done


@dataclass
class RunningBackend:
    """A backend in the run: its record, its folder, and its process while it lives."""

    record: BackendRun
    folder: Path
    child: Child | RankProcesses | None = None
    first: dict[str, Any] = field(default_factory=dict)
    crowded: bool = False  # it failed for want of memory

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.record.name

    @property
    def alive(self) -> bool:
        """Return whether it has a process and nothing of it failed."""
        return self.child is not None and self.record.status != "failed"

    def let_go(self) -> None:
        """End its process."""
        if self.child is not None:
            self.child.close()
        self.child = None


def together(
    members: Sequence[RunningBackend],
    command: str,
    arguments: Callable[[RunningBackend], dict[str, Any]],
    keep: Callable[[RunningBackend, Any], None],
) -> None:
    """Have the members that live work on a command at the same time, and keep each result."""
    begun = [m for m in members if m.alive]
    for member in begun:
        assert member.child is not None
        member.child.begin(command, **arguments(member))
    for member in begun:
        assert member.child is not None
        guarded(member, partial(_kept, member, member.child, keep))


def guarded(member: RunningBackend, action: Callable[[], None]) -> None:
    """Do something with a member; when it fails, that is the member's result and the run goes on."""
    if member.record.status == "failed":
        return
    try:
        action()
    except PerfkitError as error:
        member.record.status, member.record.reason = "failed", _with_log(member, error)
        member.crowded = isinstance(error, OutOfMemory)
        if member.crowded and member.child is not None:
            member.child.close()  # what it holds is memory for the others


def _kept(member: RunningBackend, child: Child | RankProcesses, keep: Callable[[RunningBackend, Any], None]) -> None:
    keep(member, child.result())


def _with_log(member: RunningBackend, error: PerfkitError) -> str:
    """Return what went wrong, and where the whole message is, unless there is a next step."""
    log = member.folder / LOG
    said = str(error)
    if error.hint or not (log.is_file() and log.stat().st_size):
        return said
    return f"{said.rstrip('.')}. The whole message is in {member.name}/{LOG} of the run folder."
