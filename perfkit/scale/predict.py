"""The report: every way, number of ranks and scaling, and what is taken for granted."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.errors import UsageError
from perfkit.scale import memory, schedule
from perfkit.scale.links import Network
from perfkit.scale.one_rank import OneRank
from perfkit.scale.results import Prediction, ScaleReport

SCALINGS = ("weak", "strong")


def predict(
    one: OneRank, network: Network, ranks: Sequence[int], ways: Sequence[str], scalings: Sequence[str] = SCALINGS
) -> ScaleReport:
    """Predict the step of `one` on each number of `ranks` by each of `ways`.

    Raises `UsageError` for an unknown way, for another than `one` was run by, or no ranks.
    """
    if one.way and one.way not in schedule.WAYS:
        raise UsageError(
            f"The run was made with --parallel {one.way}, which cannot be predicted.",
            f"Run it again without, or with one of {', '.join(schedule.WAYS)}.",
        )
    for way in ways:
        if way not in schedule.WAYS:
            raise UsageError(f"--parallel {way} cannot be predicted.", f"Choose {', '.join(schedule.WAYS)}.")
    if one.way and set(ways) != {one.way}:
        raise UsageError(
            f"The run was made with --parallel {one.way}, whose work is in its step.",
            f"Predict {one.way} from it, or run again with the wanted way, or without one.",
        )
    if not ranks or not ways or min(ranks) < 2:
        raise UsageError("--ranks takes numbers of ranks, of two or more.", "Give --ranks 8,64 --parallel ddp,fsdp.")
    problems: list[str] = []
    points = []
    for scaling in scalings:
        for way in ways:
            for count in ranks:
                if scaling == "strong" and one.manifest.settings.batch_size % count:
                    continue
                points.append(_point(one, network, way, count, scaling))
    left = [n for n in ranks if one.manifest.settings.batch_size % n]
    if left and "strong" in scalings:
        problems.append(
            f"Strong scaling is not predicted for {', '.join(map(str, left))} ranks, which do not divide the batch of "
            f"{one.manifest.settings.batch_size} samples."
        )
    settings = one.manifest.settings
    return ScaleReport(
        title=one.manifest.workload.title,
        backend=one.backend.name,
        device=one.ceilings.device_name or settings.device,
        dtype=settings.dtype,
        sample_name=one.manifest.workload.sample_name,
        step_ns=one.step_ns,
        memory_bytes=one.backend.peak_memory_bytes,
        parameters=one.manifest.workload.parameters,
        links=network.words(max(ranks)),
        points=points,
        assumptions=_assumptions(one, network, ways, ranks),
        problems=problems,
    )


def _point(one: OneRank, network: Network, way: str, ranks: int, scaling: str) -> Prediction:
    share = 1.0 if scaling == "weak" else 1 / ranks
    step = schedule.WAYS[way](one, network, ranks, share)
    speedup = one.step_ns / step.ns * (ranks if scaling == "weak" else 1.0)
    samples = one.manifest.workload.samples_per_step
    return Prediction(
        parallel=way,
        ranks=ranks,
        hosts=network.hosts(ranks),
        scaling=scaling,
        step_ns=step.ns,
        compute_ns=step.compute_ns,
        added_ns=step.added_ns,
        host_ns=step.host_ns,
        communication_ns=step.communication_ns,
        exposed_ns=step.exposed_ns,
        message_bytes=step.message_bytes,
        samples_per_second=samples * speedup / (one.step_ns * 1e-9) if samples else None,
        efficiency=speedup / ranks,
        memory_bytes=memory.peak_bytes(one, way, ranks, share),
    )


def _assumptions(one: OneRank, network: Network, ways: Sequence[str], ranks: Sequence[int]) -> list[str]:
    said = [
        "Every rank takes as long as the measured one: no straggler, no jitter, no slower data loading.",
        *schedule.assumptions(ways, one),
    ]
    if one.on_gpu:
        said.append("Computation that overlaps a collective is as fast as alone; collectives run one after the other.")
    else:
        said.append("On CPUs nothing overlaps: gloo's threads use the cores that compute. Each rank has as many cores.")
    said.append(
        "Strong scaling: kernels shrink with the batch, on a GPU not below 3 µs"
        + (", and the step not below what its host takes to launch it." if one.host_ns else ".")
    )
    if not network.sweeps or network.hosts(max(ranks)) > 1 or {s.ranks for s in network.sweeps}.isdisjoint(ranks):
        said.append(
            "A collective takes the better of ring and tree, of NCCL's low-latency and its simple protocol; where more "
            "ranks were not measured, latency grows with the steps of the ring, and bus bandwidth stays."
        )
    said.append(memory.ASSUMED)
    return said
