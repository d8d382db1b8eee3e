"""Measured sweeps of collectives, kept next to the other ceilings."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perfkit.hardware.collectives.formulas import bus_bandwidth, seconds_at

# In the order in which they are measured and shown. `send_recv`: every rank sends to the next one, and receives.
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
_STAND_FOR = {"send": "send_recv", "recv": "send_recv", "reduce": "broadcast"}


class SizeTime(msgspec.Struct, frozen=True, kw_only=True):
    """One size of message (bytes): the time of a call on the slowest rank (s), the mean of `calls` in the best round.

    `spread` is the share by which the second best round takes longer; None for one round.
    """

    bytes: float
    seconds: float
    calls: int
    spread: float | None = None


class CollectiveSweep(msgspec.Struct, frozen=True, kw_only=True):
    """One collective between `ranks` of one host, over sizes in rising order, as measured at `measured_at`."""

    operation: str
    ranks: int
    carrier: str  # nccl or gloo
    measured_at: str
    points: list[SizeTime]
    software: dict[str, str] = {}

    @property
    def latency_s(self) -> float:
        """The time of the smallest message."""
        return self.points[0].seconds

    def seconds(self, message_bytes: float) -> float:
        """The time of a message of any size (`formulas.seconds_at`)."""
        return seconds_at([(p.bytes, p.seconds) for p in self.points], message_bytes)

    def bus_bandwidth(self, message_bytes: float) -> float | None:
        """Bytes/s over each link for a message of any size."""
        return bus_bandwidth(self.operation, self.ranks, message_bytes, self.seconds(message_bytes))


def sweep_for(sweeps: Sequence[CollectiveSweep], operation: str, ranks: int) -> CollectiveSweep | None:
    """Return the sweep for an operation between `ranks` ranks; None if it was not measured.

    `send_recv` means one direction of a message, `broadcast` a reduction to one rank.
    """
    wanted = _STAND_FOR.get(operation, operation)
    return next((s for s in sweeps if s.operation == wanted and s.ranks == ranks), None)
