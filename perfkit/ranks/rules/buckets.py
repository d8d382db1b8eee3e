"""Many collectives of small messages, where fewer of larger ones would do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit.analysis.results import Unjudged
from perfkit.analysis.rules.base import WORTH
from perfkit.hardware.collectives.formulas import bus_factor
from perfkit.ranks.results import RanksFinding
from perfkit.ranks.rules import links
from perfkit.ranks.rules.base import SEVERAL, RanksCase, RanksRule
from perfkit.units import text

_JOINED = ("all_reduce", "reduce_scatter", "all_gather")
_CALLS = 3  # a step and group: less cannot be joined by much
_SMALL = 4 * 2.0**20  # bytes, without a sweep: NCCL reaches a fifth of NVLink 4 with it
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
        own_ns = float(case.waiting.own[calls].sum()) / case.steps
        size = float(case.matched.message_bytes[calls].sum()) / case.steps
        if case.sweep(calls[0]) is None:
            rate = _rate(case, calls[0])
            if rate is None and own_ns >= WORTH * case.step_ns:
                yield rule.cannot(f"nobody measured the links, and how long small messages of {operation} must take")
            if rate is None or own_ns <= 2 * _transfer_ns(case, calls, rate):
                continue  # its bytes take that long
        exposed, _ = case.most(case.exposed[calls])
        yield rule.finding(
            case,
            f"{count:.0f} small {operation} a step take {text(own_ns, 'ns')}",
            f"They carry {text(size, 'B')} together between the ranks of {group or 'a group'}, "
            f"{text(size / count, 'B')} each on average: most of a call is latency. {text(exposed, 'ns')} a step of "
            "them is exposed.",
            own_ns,
            min(own_ns - _joined(case, calls, own_ns, size), exposed),
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
    """Return the time of the same bytes in buckets of 25 MiB, ns a step: as measured, else a call's latency for each
    bucket, and the bytes at the rate of large messages."""
    number = max(1.0, np.ceil(size / _BUCKET))
    sweep = case.sweep(calls[0])
    if sweep is not None:
        return min(float(number * sweep.seconds(size / number) * 1e9), own)
    transfer = _transfer_ns(case, calls, _rate(case, calls[0]) or np.inf)
    return min(float(number * (own - transfer) * case.steps / len(calls) + transfer), own)


def _rate(case: RanksCase, k: int) -> float | None:
    """The bus bandwidth of large messages of a collective's operation, bytes/s: by the datasheet of the link, else the
    best of this profile; None where neither is known."""
    matched = case.matched
    larger = [i for i in range(len(matched)) if matched.message_bytes[i] > _SMALL]
    rates = [links.bus_rate(case, i) for i in larger if matched.operation[i] == matched.operation[k]]
    return links.datasheet_rate(case, k) or max(rates, default=0.0) or None


def _transfer_ns(case: RanksCase, calls: list[int], rate: float) -> float:
    """Return the time of the bytes of `calls` at a bus bandwidth of `rate`, ns a step."""
    factors = [bus_factor(case.matched.operation[k], case.group_size(k)) or 0.0 for k in calls]
    return float(np.dot(factors, case.matched.message_bytes[calls])) / rate * 1e9 / case.steps


RULES = (
    RanksRule(
        name="small-buckets",
        summary="many collectives of small messages",
        where=SEVERAL,
        what="A collective costs some µs whatever it carries: small messages leave the links idle.",
        recognised="Three calls or more a step of one operation in one group, each of a message that reaches less than "
        "half of the bandwidth that `perfkit ceilings --ranks N` measured. Without that: of at most 4 MiB, and more "
        "than twice as long as their bytes take at 55 % of the link's datasheet or at the best rate of larger ones.",
        estimate="Their own time less that of the same bytes in buckets of 25 MiB, as measured; without that a bucket "
        "has the latency of a call, and its bytes go at the rate of large messages. No more than what is exposed.",
        remedies=(
            "Join them: a larger bucket_cap_mb for DistributedDataParallel, more blocks in a unit of fully_shard, one "
            "tensor (torch.cat, or torch.distributed's coalescing) instead of many.",
        ),
        example="`DistributedDataParallel(model, bucket_cap_mb=1)`, or an all-reduce for each parameter.",
        find=_buckets,
        rank=3,
    ),
)
