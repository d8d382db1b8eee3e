"""A process that is timed among others waits for its turn, and at the end for the others (`perfkit.tries.together`)."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

AFTER = 2  # steps after which it waits: a whole one is over, whatever a step is
WAITING, TIMED = "waiting", "timed"  # empty files in its own folder: it waits for GO, and for LEAVE
GO, LEAVE = "go", "leave"  # and in the folder above
_LOOK_S = 0.005


def wait(folder: Path, said: str, for_: str, process: int) -> None:
    """Say in `folder` that this process waits, until `process` answers, or is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / said).touch()
    while not (folder.parent / for_).exists() and _is_alive(process):
        time.sleep(_LOOK_S)


def _is_alive(process: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
