"""Offsets between the ranks' clocks: a robust line through the differences of the ends of collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import RankClock

_MOST = 400  # collectives that a line is drawn through: all pairs of them are looked at


def align(members: Sequence[RankTable], matched: Matched) -> list[RankClock]:
    """Return each member's clock: theirs = first's + offset + drift · time since the first collective.

    A collective that all ranks must reach ends on all of them at once, except the network's latency. The drift is the
    median of the slopes between all pairs of ends (Theil–Sen); it counts only where the clocks part by more than the
    residual over the capture.
    """
    rows = matched.rows[matched.synchronising]
    clocks = [RankClock(rank=members[0].rank, collectives=len(rows), offset_ns=0.0, residual_ns=0.0)]
    for i, member in enumerate(members[1:], 1):
        both = (rows[:, 0] >= 0) & (rows[:, i] >= 0)
        if not both.any():
            clocks.append(RankClock(rank=member.rank, collectives=0))
            continue
        first, other = members[0].end[rows[both, 0]], member.end[rows[both, i]]
        base = float(member.facts.get("origin_ns", 0) - members[0].facts.get("origin_ns", 0))
        clocks.append(_clock(member.rank, first, other - first + base))
    return clocks


def on_first(member: RankTable, first: RankTable, clock: RankClock, moments: np.ndarray) -> np.ndarray:
    """Moments of a member's trace as moments of the first one's; without an alignment by the hosts' own clocks."""
    base = float(member.facts.get("origin_ns", 0) - first.facts.get("origin_ns", 0))
    return (moments + base - (clock.offset_ns or 0.0)) / (1.0 + clock.drift)


def _clock(rank: int, moments: np.ndarray, differences: np.ndarray) -> RankClock:
    drift = _slope(moments, differences)
    flat = np.abs(differences - np.median(differences))
    if abs(drift) * (moments.max() - moments.min()) < 3 * np.median(flat - flat.min()):
        drift = 0.0
    offset = float(np.median(differences - drift * moments))
    residual = np.abs(differences - offset - drift * moments)
    return RankClock(
        rank=rank, collectives=len(moments), offset_ns=offset, drift=drift, residual_ns=float(np.median(residual))
    )


def _slope(moments: np.ndarray, differences: np.ndarray) -> float:
    if len(moments) < 8:
        return 0.0
    chosen = np.linspace(0, len(moments) - 1, min(len(moments), _MOST)).astype(int)
    x, y = moments[chosen], differences[chosen]
    i, j = np.triu_indices(len(x), 1)
    apart = x[j] - x[i]
    real = np.abs(apart) > 0
    return float(np.median((y[j] - y[i])[real] / apart[real])) if real.any() else 0.0
