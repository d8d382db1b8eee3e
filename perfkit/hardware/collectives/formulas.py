"""Bandwidth of collectives, as nccl-tests defines it (its doc/PERFORMANCE.md).

A message is what a rank puts in, of an all-gather what it gets out: S bytes. Algorithm bandwidth is S / t. Bus
bandwidth is what each link carries, whatever the number of ranks n: algorithm bandwidth times the factor below.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send": lambda n: 1.0,
    "recv": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}


def bus_factor(operation: str, ranks: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth; None for an operation without a known factor."""
    factor = _FACTORS.get(operation)
    return None if factor is None else factor(ranks)


def bus_bandwidth(operation: str, ranks: int, message_bytes: float, seconds: float) -> float | None:
    """Bytes/s over each link; None for an operation without a known factor, or a message or time of 0."""
    factor = bus_factor(operation, ranks)
    if factor is None or ranks < 2 or not message_bytes > 0 or not seconds > 0:
        return None
    return message_bytes / seconds * factor


def seconds_at(points: Sequence[tuple[float, float]], message_bytes: float) -> float:
    """The time of a message by measured (bytes, seconds) of rising size: between two sizes by logarithms.

    Below the smallest one its time holds, which is latency; above the largest its rate.
    """
    if message_bytes <= points[0][0]:
        return points[0][1]
    if message_bytes >= points[-1][0]:
        return points[-1][1] * message_bytes / points[-1][0]
    after = bisect_right([size for size, _ in points], message_bytes)
    (low, least), (high, most) = points[after - 1 : after + 1]
    share = math.log(message_bytes / low) / math.log(high / low)
    return least * (most / least) ** share
