"""Links that carry messages between ranks, and the time of a collective over them.

A ring sends n − 1 parts (of an all-reduce twice as many) one after the other, each of S / n bytes; a tree reaches all
hosts in log2 steps. Each step costs a latency, and the bytes pass the slowest link at its rate. As NCCL does, a message
takes the better of ring and tree, and of two protocols: one of low latency, which moves a flag with each word and so
half the bytes, and a simple one. Latencies of steps are those of NCCL's own tuning model (src/graph/tuning.cc).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from perfkit.errors import UsageError
from perfkit.hardware.collectives.formulas import bus_factor
from perfkit.hardware.collectives.results import CollectiveSweep, sweep_for
from perfkit.units import text

MEASURED = "measured"


@dataclass(frozen=True)
class Link:
    """One direction between two ranks or hosts: bytes/s on paper, the share that is reached, s of a step of a ring by
    the low-latency and by the simple protocol, and of a step of a tree. `base_s` is what a call takes at least."""

    name: str
    wire: float
    reached: float
    quick_s: float
    simple_s: float
    tree_s: float
    base_s: float = 7e-6

    @property
    def rate(self) -> float:
        """Bytes/s that a large message reaches."""
        return self.wire * self.reached

    def __str__(self) -> str:
        return (
            f"{self.name}: {text(self.wire, 'B/s')} a direction, of which {self.reached:.0%} are reached; "
            f"{text(self.quick_s * 1e9, 'ns')} to {text(self.simple_s * 1e9, 'ns')} a step"
        )


def _gpu(name: str, wire: float) -> Link:
    # Two H200 on NVLink 4 reached 299 of 450 GB/s at 256 MiB (docs/several-gpus.md).
    return Link(name, wire, 0.68, 0.6e-6, 3.4e-6, 28e-6)


def _bus(name: str, wire: float) -> Link:
    return Link(name, wire, 0.8, 1.0e-6, 5.7e-6, 28e-6)


def _network(name: str, wire: float, reached: float = 0.9, slower: float = 1.0) -> Link:
    return Link(name, wire, reached, 2.7e-6 * slower, 14e-6 * slower, 5e-6 * slower)


KINDS = {
    "nvlink3": _gpu("NVLink 3", 300e9),
    "nvlink4": _gpu("NVLink 4", 450e9),
    "nvlink5": _gpu("NVLink 5", 900e9),
    "pcie4": _bus("PCIe 4 ×16", 31.5e9),
    "pcie5": _bus("PCIe 5 ×16", 63e9),
    "hdr": _network("InfiniBand HDR", 25e9),
    "ndr": _network("InfiniBand NDR", 50e9),
    "ethernet": _network("100 Gb/s Ethernet", 12.5e9, 0.8, 4.0),
}
_OWN = re.compile(r"(\d+(?:\.\d+)?)GB/s(?::(\d+(?:\.\d+)?)us)?")


def link(text_: str) -> Link:
    """The link that a kind's name, or a rate and a latency such as `50GB/s:5us`, means. Raises `UsageError`."""
    if own := _OWN.fullmatch(text_):
        latency = float(own[2] or 5) * 1e-6
        return Link(text_, float(own[1]) * 1e9, 1.0, latency, latency, latency)
    if text_ not in KINDS:
        raise UsageError(
            f"{text_!r} is not a kind of link.", f"Choose {', '.join(KINDS)}, or write a rate as in 50GB/s:5us."
        )
    return KINDS[text_]


@dataclass(frozen=True)
class Network:
    """Hosts of `per_host` ranks: links inside one, or `sweeps` measured there, and `between`, one port a rank."""

    per_host: int
    inside: Link | None
    between: Link
    sweeps: Sequence[CollectiveSweep] = ()

    def hosts(self, ranks: int) -> int:
        """Return the number of hosts of `ranks` ranks."""
        return math.ceil(ranks / self.per_host)

    def seconds(self, operation: str, ranks: int, message_bytes: float) -> float:
        """The time of a collective between `ranks`; 0 for one rank or no bytes. Messages as in `formulas`."""
        if ranks < 2 or not message_bytes > 0:
            return 0.0
        exact = sweep_for(self.sweeps, operation, ranks) if self.hosts(ranks) == 1 else None
        if exact is not None:
            return exact.seconds(message_bytes)
        return min(
            self._way(operation, ranks, message_bytes, quick, tree)
            for quick in (True, False)
            for tree in ((False, True) if operation == "all_reduce" else (False,))
        )

    def _way(self, operation: str, ranks: int, message_bytes: float, quick: bool, tree: bool) -> float:
        """By one protocol in a ring or a tree."""
        hosts, near = self.hosts(ranks), min(ranks, self.per_host)
        sweep = self._nearest(operation)
        rounds = 2 if operation == "all_reduce" else 1
        far_steps = rounds * (hosts - 1)
        near_steps = rounds * (ranks - 1) - far_steps
        far_s = self.between.quick_s if quick else self.between.simple_s
        if tree:
            near_steps, far_steps = rounds * (near - 1), rounds * math.ceil(math.log2(hosts)) if hosts > 1 else 0
            far_s = self.between.tree_s if quick else 2 * self.between.simple_s
        near_s, rate, base = self._near(operation, message_bytes, sweep, quick)
        if hosts > 1:
            ports = near if operation != "send_recv" else 1
            rate = min(rate, self.between.rate * ports * (0.5 if quick else 1.0))
        return base + near_steps * near_s + far_steps * far_s + self._bytes(operation, ranks, message_bytes) / rate

    def _bytes(self, operation: str, ranks: int, message_bytes: float) -> float:
        """Return the bytes that pass the slowest link."""
        factor = bus_factor(operation, ranks) or 1.0
        if operation == "all_to_all" and self.hosts(ranks) > 1:  # no ring: each rank's own port carries its own part
            factor *= min(ranks, self.per_host)
        return message_bytes * factor

    def _near(
        self, operation: str, message_bytes: float, sweep: CollectiveSweep | None, quick: bool
    ) -> tuple[float, float, float]:
        """Return seconds of a step, bytes/s and least seconds of a call for a link inside a host."""
        if sweep is None:
            assert self.inside is not None
            step = self.inside.quick_s if quick else self.inside.simple_s
            return step, self.inside.rate * (0.5 if quick else 1.0), self.inside.base_s
        rounds = 2 if operation == "all_reduce" else 1
        step = sweep.latency_s / (rounds * (sweep.ranks - 1))
        over = max(sweep.seconds(message_bytes) - sweep.latency_s, 0.0)
        factor = bus_factor(sweep.operation, sweep.ranks) or 1.0
        return step, message_bytes * factor / over if over else math.inf, 0.0

    def _nearest(self, operation: str) -> CollectiveSweep | None:
        """The sweep of an operation between the most ranks."""
        found = [s for n in {s.ranks for s in self.sweeps} if (s := sweep_for(self.sweeps, operation, n))]
        return max(found, key=lambda s: s.ranks, default=None)

    def words(self, most: int) -> list[str]:
        """A sentence for each kind of link between up to `most` ranks."""
        said = [f"Inside a host of {self.per_host} ranks, {self._inside()}."]
        if self.hosts(most) > 1:
            said.append(f"Between hosts, one port a rank, {self.between}.")
        return said

    def _inside(self) -> str:
        if not self.sweeps:
            return str(self.inside)
        sizes = ", ".join(str(n) for n in sorted({s.ranks for s in self.sweeps}))
        first = self.sweeps[0]
        return f"measured: {first.carrier} between {sizes} ranks, {first.measured_at[:10]}"


def network(given: str, per_host: int, device: str, device_name: str, sweeps: Sequence[CollectiveSweep]) -> Network:
    """The network that --link means: `inside,between`, one of the two left out, or nothing.

    Inside a host it is the measured link, else the kind known for the GPU's name. Raises `UsageError` where that is
    not known.
    """
    if per_host < 1:
        raise UsageError(f"--per-host {per_host} is not a number of ranks.", "Give --per-host 8.")
    inside, _, between = given.partition(",")
    beyond = link(between or "ndr")
    if inside and inside != MEASURED:
        return Network(per_host, link(inside), beyond)
    if sweeps:
        return Network(per_host, None, beyond, tuple(sweeps))
    named = None if inside == MEASURED else _of_device(device_name)
    if named is None:
        cuda = "" if device == "cpu" else " --device cuda"
        raise UsageError(
            "How fast the links inside a host are is not known.",
            f"Measure them: perfkit ceilings --ranks 2{cuda}; or name them: --link {next(iter(KINDS))}.",
        )
    return Network(per_host, link(named), beyond)


def _of_device(name: str) -> str | None:
    found = {"A100": "nvlink3", "A800": "nvlink3", "H100": "nvlink4", "H200": "nvlink4", "H20": "nvlink4",
             "B100": "nvlink5", "B200": "nvlink5", "B300": "nvlink5"}  # fmt: skip
    if "PCIe" in name:
        return "pcie5" if "H100" in name else "pcie4"
    return next((kind for gpu, kind in found.items() if gpu in name), None)
