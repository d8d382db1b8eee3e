"""Collectives by operation, message and group: own time, waiting, skew, and the bandwidth that they reach."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from perfkit.hardware.collectives.formulas import bus_bandwidth
from perfkit.hardware.collectives.results import CollectiveSweep, sweep_for
from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import Collective
from perfkit.ranks.waiting import Waiting

# Sweeps of collectives that were measured where the traces come from.
Roofs = Sequence[CollectiveSweep]
_DTYPE = re.compile(r"(?:fp|bf|int|uint)\d+|bool")


def roof_of(operation: str, ranks: int, message_bytes: float, roofs: Roofs) -> float | None:
    """Return the bus bandwidth in bytes/s measured for such a message in a group of this size; None if not measured."""
    sweep = sweep_for(roofs, operation, ranks)
    return sweep.bus_bandwidth(message_bytes) if sweep else None


def table(
    members: Sequence[RankTable], matched: Matched, waiting: Waiting, roofs: Roofs | None = None
) -> list[Collective]:
    """A record for each operation with one message in one group, those with the longest own time first."""
    kinds: dict[tuple[str, str, float, str, str], list[int]] = {}
    of = dtypes(members, matched)
    for k in range(len(matched)):
        key = (matched.operation[k], matched.group[k], float(matched.message_bytes[k]), matched.algorithm[k], of[k])
        kinds.setdefault(tuple(-1.0 if v != v else v for v in key), []).append(k)  # type: ignore[arg-type]
    steps = max(members[0].steps, 1)
    found = [_one(key, calls, matched, waiting, steps, roofs or ()) for key, calls in kinds.items()]
    return sorted(found, key=lambda c: -c.latency_ns * c.count)


def _one(
    key: tuple[str, str, float, str, str],
    calls: list[int],
    matched: Matched,
    waiting: Waiting,
    steps: int,
    roofs: Roofs,
) -> Collective:
    operation, group, size, algorithm, dtype = key
    known = None if size < 0 else size
    ranks = group_size(group) or int((matched.rows[calls[0]] >= 0).sum())
    latency = float(np.median(waiting.own[calls]))
    duration = waiting.duration[calls]
    algorithm_bandwidth = known / (latency * 1e-9) if known and latency > 0 else None
    return Collective(
        operation=operation,
        group=group,
        ranks=ranks,
        message_bytes=known,
        dtype=dtype,
        algorithm=algorithm,
        count=len(calls) / steps,
        latency_ns=latency,
        waiting_ns=float(np.nansum(waiting.wait[calls])) / steps,
        skew_ns=float(np.median(np.nanmax(duration, axis=1) - np.nanmin(duration, axis=1))),
        algorithm_bandwidth=algorithm_bandwidth,
        bus_bandwidth=bus_bandwidth(operation, ranks, known or 0.0, latency * 1e-9),
        roof=None if known is None else roof_of(operation, ranks, known, roofs),
    )


def group_size(group: str) -> int | None:
    """The number of ranks in a group's text, such as `dp [0, 1]`; None where it names none, or was cut."""
    inside = group.rpartition("[")[2]
    if not group.endswith("]") or "..." in inside:
        return None
    return len([word for word in inside.rstrip("]").split(",") if word.strip()]) or None


def dtypes(members: Sequence[RankTable], matched: Matched) -> list[str]:
    """Return the dtype of each collective from the table's shapes (`all_reduce fp32[1024], 2 ranks`); "" for none."""
    texts = [m.frame["shapes"].astype(object).fillna("").tolist() for m in members]
    found = []
    for line in matched.rows.tolist():
        text = next((texts[i][row] for i, row in enumerate(line) if row >= 0), "")
        words = text.partition("[")[0].replace(",", " ").split()
        found.append(words[1] if len(words) > 1 and _DTYPE.fullmatch(words[1]) else "")
    return found
