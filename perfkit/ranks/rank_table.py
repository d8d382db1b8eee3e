"""One rank's trace, as much of it as the ranks together need, and whether the traces belong together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.errors import InputError
from perfkit.ranks.processors import on_cpu

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.table import KernelTable

_COLUMNS = (
    "name", "short_name", "kind", "family", "device", "stream", "step", "pass", "layer", "shapes", "order", "start_ns",
    "duration_ns", "collective", "group", "message_bytes", "algorithm",
    "protocol",
)  # fmt: skip
_FACTS = ("step_ns", "per_step", "gaps", "idle", "origin_ns", "step_names", "distributed", "gpus", "lines")
_COMPUTING = ("gpu_kernel", "cpu_op")


class OtherSteps(InputError):
    """The ranks recorded different steps."""


@dataclass(frozen=True)
class RankTable:
    """A rank: the rows of its kernel table (chosen columns), and the facts about its steps and its host.

    `world_size` is 0 if the capture does not have it."""

    rank: int
    world_size: int
    path: str
    frame: pd.DataFrame
    facts: dict[str, Any]

    @property
    def steps(self) -> int:
        """The number of steps in its trace."""
        return len(self.facts["step_ns"])

    @property
    def step_ns(self) -> np.ndarray:
        """Wall time of each step."""
        return np.asarray(self.facts["step_ns"], float)

    @property
    def start(self) -> np.ndarray:
        """When each row began, in ns of this rank's own clock."""
        return self.frame["start_ns"].to_numpy(float)

    @property
    def end(self) -> np.ndarray:
        """End of each row, ns on its own clock."""
        return self.start + np.nan_to_num(self.frame["duration_ns"].to_numpy(float))

    @property
    def step(self) -> np.ndarray:
        """The step of each row, −1 outside."""
        return self.frame["step"].fillna(-1).to_numpy(np.int64)

    @property
    def is_collective(self) -> np.ndarray:
        """Return whether each row is a collective."""
        return (self.frame["family"] == "collective").to_numpy(bool, na_value=False)

    @property
    def is_compute(self) -> np.ndarray:
        """Kernels of a GPU; on a rank without one, operators on the CPU."""
        kernel = self.frame["kind"].isin(_COMPUTING).to_numpy(bool, na_value=False)
        return kernel & ~self.is_collective

    @property
    def on_gpu(self) -> bool:
        """Return whether its kernels ran on a GPU."""
        return "gpus" in self.facts


def of_table(table: KernelTable) -> RankTable:
    """The member that a trace's kernel table makes. Raises `InputError` for a table without a rank or a GPU."""
    path = table.source.get("path", "the table")
    said = table.facts.get("distributed")
    if not said:
        raise InputError(
            f"{path} does not say which rank it is of.",
            "Record it with torch.distributed initialised: torch.profiler then writes distributedInfo. An export of "
            "nsys may be named by its rank: rank0.sqlite.",
        )
    facts = {name: table.facts[name] for name in _FACTS if name in table.facts}
    frame = table.frame[list(_COLUMNS)].copy()
    if "per_step" not in table.facts:
        if not table.facts.get("cpu_collectives"):
            raise InputError(
                f"{path} holds no collective of a GPU or a CPU, so its waiting for other ranks is unknown.",
                "Report on each rank by itself.",
            )
        _require_one_group(table, str(path))
        frame, more = on_cpu(frame, table.facts)
        facts |= more
    return RankTable(said["rank"], said["world_size"], str(path), frame, facts)


def _require_one_group(table: KernelTable, path: str) -> None:
    """Raise `InputError` where collectives on CPUs can be of several groups: their ranges do not name it."""
    groups = table.facts["distributed"].get("groups", [])
    ranks = [g["ranks"] for g in groups if len(g.get("ranks", [])) > 1]
    if any(rank != ranks[0] for rank in ranks):
        raise InputError(
            f"{path} does not say in which of its process groups ({ranks[0]}, "
            f"{next(rank for rank in ranks if rank != ranks[0])}) a collective on CPUs ran.",
            "Report on each rank by itself.",
        )


def belonging(members: Sequence[RankTable]) -> tuple[list[RankTable], list[str]]:
    """Return the traces of one job, by rank, and sentences about the others and about ranks that are missing.

    Raises `InputError` where fewer than two are left.
    """
    problems: list[str] = []
    sizes = [m.world_size for m in members if m.world_size]
    world = max(set(sizes), key=sizes.count) if sizes else max((m.rank + 1 for m in members), default=0)
    if members and not sizes:
        problems.append(f"The number of ranks of the job is unknown: {world}, if {world - 1} was the last one.")
    kept: dict[int, RankTable] = {}
    for member in members:
        if member.world_size not in (0, world) or member.rank >= world:
            own = f"a job of {member.world_size} ranks" if member.world_size else f"rank {member.rank}"
            problems.append(f"{member.path} is of {own}, the others are of one of {world}: left out.")
        elif member.rank in kept:
            problems.append(f"{member.path} is of rank {member.rank}, as {kept[member.rank].path} is: left out.")
        else:
            kept[member.rank] = dataclasses.replace(member, world_size=world)
    if len(kept) < 2:
        raise InputError(
            "There are not two ranks of one job among these traces. " + " ".join(problems),
            "Give the traces of several ranks, recorded in the same steps.",
        )
    missing = sorted(set(range(world)) - set(kept))
    if missing:
        named = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        ranks = "rank is" if len(missing) == 1 else "ranks are"
        problems.append(f"{len(missing)} of {world} {ranks} not here ({named}): waiting for a missing rank is unknown.")
    return [kept[rank] for rank in sorted(kept)], problems


def same_steps(members: Sequence[RankTable]) -> tuple[list[RankTable], list[str]]:
    """The members cut to the steps that all of them recorded, by the names of the steps where they are numbered."""
    names = [_names(m) for m in members]
    shared = [name for name in names[0] if all(name in other for other in names)]
    if all(list(other) == shared for other in names):
        return list(members), []
    if not shared:
        raise other_steps(members)
    cut = [_cut(m, [list(n).index(s) for s in shared]) for m, n in zip(members, names, strict=True)]
    return cut, [f"The ranks recorded different steps: the {len(shared)} that all of them have are compared."]


def other_steps(members: Sequence[RankTable]) -> OtherSteps:
    """The error of ranks that share no step."""
    spans = "; ".join(_span(m, _names(m)) for m in members)
    return OtherSteps(f"The ranks recorded different steps: {spans}.", "Record the same steps on every rank.")


def _names(member: RankTable) -> Sequence[str]:
    """The names of its steps; one that comes again, as iterations of a serving engine do, with the times it came."""
    came, found = Counter[str](), []
    for name in member.facts.get("step_names") or [str(i) for i in range(member.steps)]:
        came[name] += 1
        found.append(name if came[name] == 1 else f"{name} ({came[name]})")
    return found


def _span(member: RankTable, names: Sequence[str]) -> str:
    return f"rank {member.rank} {names[0]} to {names[-1]}" if names else f"rank {member.rank} none"


def _cut(member: RankTable, steps: Sequence[int]) -> RankTable:
    """The member with only these of its steps, numbered from 0."""
    import pandas as pd

    new = np.full(member.steps + 1, -1, np.int64)
    new[list(steps)] = np.arange(len(steps))
    number = new[member.step]
    frame = member.frame[number >= 0].copy()
    frame["step"] = pd.array(number[number >= 0], "Int64")
    facts = dict(member.facts)
    for name in ("step_ns", "per_step", "step_names"):
        facts[name] = [member.facts[name][i] for i in steps]
    return RankTable(member.rank, member.world_size, member.path, frame, facts)
