"""The lane of a rank's collectives, and what a step comes to with them."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.scale.links import Network


@dataclass(frozen=True)
class PredictedStep:
    """A step in ns: computation, copies and host work that the way needs, collectives, and what of these is exposed.

    `host_ns` is the host work in `added_ns`.
    """

    compute_ns: float
    added_ns: float
    communication_ns: float
    exposed_ns: float
    message_bytes: float
    host_ns: float = 0.0

    @property
    def ns(self) -> float:
        """Computation, what sharing adds to it, and what of the collectives nothing hides."""
        return self.compute_ns + self.added_ns + self.exposed_ns


class Lane:
    """Collectives of `ranks` ranks, one after the other: `free` is when the last one ends, `total` what all take."""

    def __init__(self, network: Network, ranks: int) -> None:
        self._network, self._ranks = network, ranks
        self.free = self.total = self.bytes = 0.0

    def run(self, operation: str, message_bytes: float, from_ns: float) -> float:
        """Run a collective from `from_ns` on at the earliest; when it ends."""
        took = 1e9 * self._network.seconds(operation, self._ranks, message_bytes)
        self.free = max(self.free, from_ns) + took
        self.total += took
        self.bytes += message_bytes if took else 0.0
        return self.free
