"""Snapshots of allocations that failed in a program, which outlast a run that recorded nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

from perfkit.capture.agent.order import SHORTAGE


def folder_of(out: Path) -> Path:
    """The folder next to a run with the snapshots of allocations that failed."""
    return out.with_name(f"{out.name}-oom")


def keep(processes: Path, folder: Path) -> None:
    """Keep the snapshots of allocations that failed in the processes of a program, one a process."""
    found = sorted(processes.glob(f"*/{SHORTAGE}"))
    for path in found:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{path.parent.name}.pickle" if len(found) > 1 else SHORTAGE
        shutil.move(path, folder / name)
