"""Rates of causal attention on a GPU by head size and length: what remains where a needless mask is left out.

No roof: a fused kernel reaches a share of the matrix units that depends on both, forwards and backwards apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import msgspec

ATTENTION = "attention"  # the resource of an observation
FORWARD, BACKWARD = "forward", "backward"


class CausalRate(msgspec.Struct, frozen=True, kw_only=True):
    """FLOP/s of causal attention in bf16 with heads of `head` numbers over `length` places.

    Only pairs that the mask lets through count: T(T+1)/2 of them, with two products forwards and five backwards.
    """

    head: int
    length: int
    forward: float
    backward: float


def flop(heads: float, length: int, head: int, products: int) -> float:
    """FLOP of `products` products of causal attention with as many `heads`, batches included."""
    return products * 2.0 * heads * length * (length + 1) / 2 * head


def rate_at(rates: Sequence[CausalRate], head: int, length: int, backward: bool) -> float | None:
    """Return the FLOP/s at a head size and length, between those measured by their logarithms; None for no rates.

    Longer and larger ones than those get the rate of the last. Of smaller heads the softmax, which costs the same for
    each score, takes the time: their rate falls with the head size.
    """
    by_head = sorted({rate.head for rate in rates})
    if not by_head:
        return None
    of_heads = []
    for size in by_head:
        mine = sorted((rate.length, rate.backward if backward else rate.forward) for rate in rates if rate.head == size)
        of_heads.append((size, _between(mine, length)))
    return _between(of_heads, head) * min(1.0, head / by_head[0])


def _between(points: Sequence[tuple[int, float]], at: int) -> float:
    """The value at a place by the two points around it, linear in the logarithm of the place."""
    for (low, first), (high, second) in itertools.pairwise(points):
        if low <= at <= high:
            return first + (second - first) * math.log(at / low) / math.log(high / low)
    return points[0][1] if at < points[0][0] else points[-1][1]


def rates_of(seen: Iterator[tuple[str, tuple[int, int], float]]) -> list[CausalRate]:
    """The rates of observations: direction, (head, length) and FLOP/s, the best of each; sizes with both directions."""
    best: dict[tuple[int, int], dict[str, float]] = {}
    for direction, sizes, value in seen:
        mine = best.setdefault(sizes, {})
        mine[direction] = max(value, mine.get(direction, 0.0))
    return [
        CausalRate(head=head, length=length, forward=one[FORWARD], backward=one[BACKWARD])
        for (head, length), one in sorted(best.items()) if len(one) == 2
    ]  # fmt: skip
