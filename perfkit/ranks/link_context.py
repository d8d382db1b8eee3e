"""Context of the traces of ranks: the links that were measured on their machine, and the environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfkit.errors import InputError
from perfkit.hardware.ceilings import from_json
from perfkit.hardware.collectives.results import CollectiveSweep
from perfkit.hardware.store import kept_ceilings
from perfkit.ranks.rank_table import RankTable
from perfkit.run_folder import CEILINGS, is_run_folder, read_manifest


def run_of(members: Sequence[RankTable]) -> Path | None:
    """Return the run folder of the traces; None outside of one."""
    folder = Path(members[0].path).absolute().parent.parent
    return folder if is_run_folder(folder) else None


def roofs(members: Sequence[RankTable], run: Path | None) -> list[CollectiveSweep]:
    """The sweeps of collectives on the machine of the traces: those of their run, else those kept here where the GPUs
    are of the same kind."""
    try:
        found = from_json((run / CEILINGS).read_bytes()).collectives if run else []
    except (OSError, ValueError):
        found = []
    if found:
        return found
    kept = kept_ceilings("cuda")
    names = {gpu.get("name") for member in members for gpu in member.facts.get("gpus") or []}
    return kept.collectives if kept and names == {kept.device_name} else []


def environment(run: Path | None) -> dict[str, Any]:
    """The environment of the run; empty without one."""
    try:
        return read_manifest(run).environment if run else {}
    except InputError:
        return {}
