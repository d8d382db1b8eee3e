"""Which kernels on different ranks are the same collective: by step, group, and the place in the group's sequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.errors import InputError
from perfkit.ranks.rank_table import RankTable

# Collectives that end on no rank before the last one has arrived. From others (broadcast, reduce, send, recv) a rank
# may leave early: their starts show who waits.
SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


@dataclass(frozen=True)
class Matched:
    """Collectives that every rank of their group was found to take part in.

    `rows` has a line for each collective and a column for each member: the row in that member's frame, −1 for a member
    outside the group. The other arrays have a value for each collective.
    """

    rows: np.ndarray
    step: np.ndarray
    operation: list[str]
    group: list[str]
    message_bytes: np.ndarray
    algorithm: list[str]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def synchronising(self) -> np.ndarray:
        """Return whether each is a collective that no rank leaves before the last has come."""
        return np.array([o in SYNCHRONISING for o in self.operation], bool)


def match(members: Sequence[RankTable]) -> tuple[Matched, list[str]]:
    """Match the collectives inside the steps of `members`; sentences about those that cannot be matched.

    One whose duration no trace has is left out.
    """
    durations = [member.frame["duration_ns"].to_numpy(float) for member in members]
    sequences = [_sequences(member) for member in members]
    found: list[tuple[list[int], int, tuple[str, float]]] = []
    problems: list[str] = []
    for key in dict.fromkeys(key for sequence in sequences for key in sequence):
        step, group = key
        having = [i for i, one in enumerate(sequences) if key in one]
        if len(having) < 2 or "?" in group:
            continue  # the group's other ranks are not here, or it is not known which they are
        calls = _aligned([sequences[i][key] for i in having])
        usable = _common(calls)
        if usable < max(map(len, calls)):
            counts = ", ".join(f"rank {members[i].rank} {len(sequences[i][key])}" for i in having[:8])
            problems.append(
                f"Step {step}: the ranks of {group} do not have the same collectives ({counts}); "
                f"the first {usable} are matched."
            )
        for k in range(usable):
            rows = [-1] * len(members)
            for i, call in zip(having, calls, strict=True):
                rows[i] = call[k][0]
            if any(row >= 0 and np.isfinite(duration[row]) for row, duration in zip(rows, durations, strict=True)):
                found.append((rows, step, calls[0][k][1]))
    return _matched(members, found), problems[:20]


def require(matched: Matched, members: Sequence[RankTable]) -> None:
    """Raise `InputError` where nothing was matched: then nothing can be said of the ranks together."""
    if len(matched):
        return
    counts = ", ".join(f"rank {m.rank} {int(m.is_collective.sum())}" for m in members[:8])
    raise InputError(
        f"No collective in the steps is the same on two ranks (kernels of collectives: {counts}).",
        "Record the same steps on every rank, with CUDA activity.",
    )


def _sequences(member: RankTable) -> dict[tuple[int, str], list[tuple[int, tuple[str, float]]]]:
    """Return by step and group the collectives in the order of their launch: row, and (operation, bytes)."""
    chosen = np.flatnonzero(member.is_collective & (member.step >= 0))
    chosen = chosen[np.argsort(member.frame["order"].to_numpy(np.int64)[chosen], kind="stable")]
    part = member.frame.iloc[chosen]
    columns = (
        part["collective"].astype(object).fillna("unknown").tolist(),
        part["message_bytes"].fillna(-1.0).tolist(),
        part["group"].astype(object).fillna("").tolist(),
        member.step[chosen].tolist(),
        chosen.tolist(),
    )
    result: dict[tuple[int, str], list[tuple[int, tuple[str, float]]]] = {}
    for operation, size, group, step, row in zip(*columns, strict=True):
        result.setdefault((step, group), []).append((row, (str(operation), size)))
    return result


def _aligned(calls: Sequence[list[tuple[int, tuple[str, float]]]]) -> list[list[tuple[int, tuple[str, float]]]]:
    """Return the calls in the order of the first rank's, where all ranks have the same ones in some order.

    Threads of gloo that begin at the same time are recorded in either order. A communicator of NCCL has one order.
    """
    kinds = [Counter(call for _, call in one) for one in calls]
    if any(kind != kinds[0] for kind in kinds[1:]):
        return list(calls)
    wanted = _numbered([call for _, call in calls[0]])
    found = [dict(zip(_numbered([call for _, call in one]), one, strict=True)) for one in calls]
    return [[rows[call] for call in wanted] for rows in found]


def _numbered(calls: Sequence[tuple[str, float]]) -> list[tuple[tuple[str, float], int]]:
    """Return each call with how many equal ones came before it."""
    seen: Counter[tuple[str, float]] = Counter()
    numbered = []
    for call in calls:
        numbered.append((call, seen[call]))
        seen[call] += 1
    return numbered


def _common(calls: Sequence[list[tuple[int, tuple[str, float]]]]) -> int:
    """Return the number of first calls that are the same on all ranks."""
    shortest = min(map(len, calls))
    for k in range(shortest):
        if any(call[k][1] != calls[0][k][1] for call in calls[1:]):
            return k
    return shortest


def _matched(members: Sequence[RankTable], found: list[tuple[list[int], int, tuple[str, float]]]) -> Matched:
    rows = np.array([f[0] for f in found], np.int64).reshape(-1, len(members))
    first = (rows >= 0).argmax(axis=1) if len(rows) else np.zeros(0, np.int64)
    texts: dict[str, list[str]] = {"group": [], "algorithm": []}
    for i, member in zip(range(len(rows)), first.tolist(), strict=True):
        row = members[member].frame.iloc[int(rows[i, member])]
        for name in texts:
            value = row[name]
            texts[name].append(value if isinstance(value, str) else "")
    size = np.array([f[2][1] for f in found], float)
    return Matched(
        rows=rows,
        step=np.array([f[1] for f in found], np.int64),
        operation=[f[2][0] for f in found],
        group=texts["group"],
        message_bytes=np.where(size < 0, np.nan, size),
        algorithm=texts["algorithm"],
    )
