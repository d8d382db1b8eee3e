"""Many collectives of small messages, where fewer of larger ones would do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit.analysis.results import Unjudged
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules.base import SEVERAL, RanksCase, RanksRule
from perfkit.units import text

_JOINED = ("all_reduce", "reduce_scatter", "all_gather")
_CALLS = 3  # a step and group: less cannot be joined by much
_SMALL = 4 * 2.0**20  # bytes, where no sweep tells: NCCL reaches a fifth of NVLink 4 with it
_SLOW = 0.5  # of the largest bandwidth of a sweep
_BUCKET = 25 * 2.0**20  # bytes: what DDP makes its buckets of


def _buckets(rule: RanksRule, case: RanksCase) -> Iterator[RanksFinding | Unjudged]:
    groups: dict[tuple[str, str, str], list[int]] = {}
    for k, size in enumerate(case.matched.message_bytes.tolist()):
        if case.matched.operation[k] in _JOINED and size == size and size <= _small(case, k):
            groups.setdefault((case.matched.operation[k], case.matched.group[k], case.dtypes[k]), []).append(k)
    for (operation, group, _), calls in groups.items():
        count = len(calls) / case.steps
        if count < _CALLS:
            continue
        own = float(case.waiting.own[calls].sum()) / case.steps
        size = float(case.matched.message_bytes[calls].sum()) / case.steps
        exposed, _ = case.most(case.exposed[calls])
        yield rule.finding(
            case,
            f"{count:.0f} small {operation} a step take {text(own, 'ns')}",
            f"They carry {text(size, 'B')} together between the ranks of {group or 'a group'}, "
            f"{text(size / count, 'B')} each on average: most of a call is latency. {text(exposed, 'ns')} a step of "
            "them is exposed.",
            own,
            min(own - _joined(case, calls, own, size), exposed),
            count=count,
        )


def _small(case: RanksCase, k: int) -> float:
    """The largest message that counts as small: that reaches less than half of the best bandwidth measured."""
    sweep = case.sweep(k)
    if sweep is None:
        return _SMALL
    rates = [(p.bytes, sweep.bus_bandwidth(p.bytes) or 0.0) for p in sweep.points]
    best = max(rate for _, rate in rates)
    return min(max((size for size, rate in rates if rate < _SLOW * best), default=0.0), _BUCKET)


def _joined(case: RanksCase, calls: list[int], own: float, size: float) -> float:
    """What the same bytes take in buckets of 25 MiB, ns a step: as measured, else each as long as the longest call."""
    number = max(1.0, np.ceil(size / _BUCKET))
    sweep = case.sweep(calls[0])
    if sweep is not None:
        return min(float(number * sweep.seconds(size / number) * 1e9), own)
    return min(float(number * case.waiting.own[calls].max()), own)


RULES = (
    RanksRule(
        name="small-buckets",
        summary="many collectives of small messages",
        where=SEVERAL,
        what="A collective costs some µs whatever it carries: small messages leave the links idle.",
        recognised="Three calls or more a step of one operation in one group, each of a message that reaches less than "
        "half of the bandwidth that `perfkit ceilings --ranks N` measured, without that of at most 4 MiB.",
        estimate="Their own time less that of the same bytes in buckets of 25 MiB, as measured; without that a "
        "bucket takes as long as the longest of the calls. No more than what of them is exposed.",
        remedies=(
            "Join them: a larger bucket_cap_mb for DistributedDataParallel, more blocks in a unit of fully_shard, one "
            "tensor (torch.cat, or torch.distributed's coalescing) instead of many.",
        ),
        example="`DistributedDataParallel(model, bucket_cap_mb=1)`, or an all-reduce for each parameter.",
        find=_buckets,
    ),
)
