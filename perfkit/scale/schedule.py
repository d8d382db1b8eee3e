"""When each collective of a step may begin, and what of it computation does not cover.

Collectives of a rank run one after the other, in the order in which the program begins them. On a CPU nothing is
covered: gloo's threads use the cores that compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfkit.profile_names import BACKWARD
from perfkit.scale.fsdp import GATHER_HOST_NS, PARAMETER_HOST_NS, UNIT_HOST_NS, fsdp
from perfkit.scale.lane import Lane, PredictedStep
from perfkit.scale.links import Network
from perfkit.scale.one_rank import OneRank
from perfkit.scale.parameters import Parameter
from perfkit.scale.work import RankWork, ready, work

MIB = 2.0**20
FIRST_BUCKET, BUCKET = 1 * MIB, 25 * MIB  # bytes: DDP's first bucket, and all others


@dataclass(frozen=True)
class GradientBucket:
    """Gradients that are exchanged together: bytes, and when the last of them is there."""

    bytes: float
    ready_ns: float


def ddp(one: OneRank, network: Network, ranks: int, share: float) -> PredictedStep:
    """Gradients are averaged in buckets while backward goes on; each is copied into its bucket and divided."""
    made = work(one, share)
    lane = Lane(network, ranks)
    copies, buckets = _ddp_buckets(made, one.parameters)
    for bucket in buckets:
        lane.run("all_reduce", bucket.bytes, bucket.ready_ns)
    return _step(made, lane, copies, made.until(BACKWARD) + copies)


def _ddp_buckets(made: RankWork, parameters: Sequence[Parameter]) -> tuple[float, list[GradientBucket]]:
    """Return the time of all copies, and the buckets, in the order in which gradients came in the first step, closed
    when full."""
    times = ready(made, parameters)
    order = sorted((p for p in reversed(parameters) if p.trained), key=lambda p: times[p.name])
    copies, found, limit = 0.0, [GradientBucket(0.0, 0.0)], FIRST_BUCKET
    for parameter in order:
        copies += made.moved_ns(2 * parameter.bytes)
        if found[-1].bytes >= limit:
            found.append(GradientBucket(0.0, 0.0))
            limit = BUCKET
        found[-1] = GradientBucket(found[-1].bytes + parameter.bytes, times[parameter.name] + copies)
    return copies, found


def zero1(one: OneRank, network: Network, ranks: int, share: float) -> PredictedStep:
    """Gradients are reduced in buckets, each rank gets its part; it updates that, and all gather the parameters."""
    made = work(one, share, 1 / ranks)
    lane = Lane(network, ranks)
    copies, buckets = _zero1_buckets(made, one.parameters, one.backend.name == "compile")
    for bucket in buckets:
        lane.run("reduce_scatter", bucket.bytes, bucket.ready_ns)
    end = max(lane.free, made.until(BACKWARD) + copies) + made.ns - made.until(BACKWARD)
    for bucket in buckets:
        lane.run("all_gather", bucket.bytes, end)
    return PredictedStep(
        compute_ns=made.ns,
        added_ns=copies,
        communication_ns=lane.total,
        exposed_ns=lane.free - made.ns - copies if lane.total and one.on_gpu else lane.total,
        message_bytes=lane.bytes,
    )


def _zero1_buckets(made: RankWork, parameters: Sequence[Parameter], late: bool) -> tuple[float, list[GradientBucket]]:
    """As `perfkit.backends.parallel.zero1.divided`; `late`: a compiled graph gives its gradients at its end."""
    times = ready(made, parameters)
    end = made.until(BACKWARD)
    copies, found = 0.0, [GradientBucket(0.0, 0.0)]
    for parameter in reversed([p for p in parameters if p.trained]):
        copies += made.moved_ns(2 * parameter.bytes)
        if found[-1].bytes and found[-1].bytes + parameter.bytes > BUCKET:
            found.append(GradientBucket(0.0, 0.0))
        there = (end if late else times[parameter.name]) + copies
        found[-1] = GradientBucket(found[-1].bytes + parameter.bytes, max(found[-1].ready_ns, there))
    return copies, found


def _step(made: RankWork, lane: Lane, copies: float, needed_ns: float) -> PredictedStep:
    """A step whose optimizer waits for all collectives from `needed_ns` on."""
    exposed = max(lane.free - needed_ns, 0.0) if made.one.on_gpu else lane.total
    return PredictedStep(made.ns, copies, lane.total, exposed, lane.bytes)


WAYS: dict[str, Callable[[OneRank, Network, int, float], PredictedStep]] = {"ddp": ddp, "fsdp": fsdp, "zero1": zero1}


def assumptions(ways: Sequence[str], one: OneRank) -> list[str]:
    """Return the assumptions of the schedules as sentences."""
    said = {
        "ddp": "ddp: buckets of 1 MiB, then of 25 MiB, in the order of the gradients; a bucket is reduced when its "
        "last gradient is there, while backward goes on; the optimizer waits for all of them.",
        "fsdp": "fsdp: each repeated block is a unit, the rest another; two gathered units at most in the forward "
        "pass, the next one prefetched; gradients reduced"
        + (" in fp32" if one.manifest.settings.dtype in ("bf16", "fp8") else "")
        + ".",
        "zero1": "zero1: gradients reduced in buckets of 25 MiB while backward goes on; the parameters are gathered "
        "after the optimizer, which nothing covers.",
    }
    found = [said[way] for way in dict.fromkeys(ways)] + _costs(ways, one)
    if "fsdp" in ways and one.manifest.settings.grad_accumulation > 1:
        found.append("fsdp gathers parameters once a step; a real one does for each batch that it accumulates.")
    return found


def _costs(ways: Sequence[str], one: OneRank) -> list[str]:
    """Return sentences about the costs of sharing on the rank itself: copies, hooks, other kernels."""
    if one.way:
        said = [f"What {one.way} costs a rank itself is as in the run: copies, hooks, and the kernels that it led to."]
        if one.way == "fsdp" and not one.gathered:
            said.append(
                f"A group of one gathers nothing: {GATHER_HOST_NS / 1e6} ms of the host are added for each gathering, "
                "which on a GPU shows where the host is the slower one."
            )
        return said
    found = []
    if "fsdp" in ways:
        found.append(
            f"The hooks of fsdp take the host {UNIT_HOST_NS / 1e6:.0f} ms a unit, and its optimizer "
            f"{PARAMETER_HOST_NS / 1e6} ms a parameter more, which on a GPU shows where the host is the slower one; "
            "predicted from a run with --parallel fsdp and --ranks 1 it is measured."
        )
    if "ddp" in ways and one.backend.name == "compile":
        found.append(
            "The compiled kernels stay as they are; Dynamo divides the graph at the buckets of ddp, and may choose "
            "others: predicted from a run with --parallel ddp and --ranks 1 they are measured."
        )
    return found
