"""Ranks in sentences: a few by their numbers, and stragglers that are late for one reason together."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.analysis.words import listed
from perfkit.ranks.results import Straggler
from perfkit.units import text

NAMED = 4  # ranks that a sentence names one by one, where there are more
_COVERED = 0.01  # of a delay: less covered by computation is not worth a sentence
MANY = 4  # stragglers for one kind of cause that are reported together


def numbers(ranks: Sequence[int]) -> str:
    """`3`, `0 and 2`; of many `0, 2, 4, 6 and 28 more`."""
    if len(ranks) <= NAMED + 1:
        return listed([str(rank) for rank in ranks])
    return listed([*(str(rank) for rank in ranks[:NAMED]), f"{len(ranks) - NAMED} more"])


def covered(late: Straggler) -> str:
    """A sentence on how much of a delay lengthens the step; "" where nearly all of it does."""
    bare = late.exposed_ns.value
    if bare >= (1 - _COVERED) * late.mean_ns:
        return ""
    return (
        f"On average it is {text(late.mean_ns, 'ns')}, of which at most {text(bare, 'ns')} lengthens the step: "
        "computation of the others covers the rest."
    )


def together(stragglers: Sequence[Straggler]) -> list[list[Straggler]]:
    """Stragglers by the kind of their first cause where `MANY` share it, else one by one; in the order given."""
    by_kind: dict[str, list[Straggler]] = {}
    for straggler in stragglers:
        by_kind.setdefault(straggler.causes[0].kind if straggler.causes else "", []).append(straggler)
    groups = [group for of_kind in by_kind.values() for group in _divided(of_kind)]
    return sorted(groups, key=lambda group: stragglers.index(group[0]))


def _divided(of_kind: list[Straggler]) -> list[list[Straggler]]:
    return [of_kind] if len(of_kind) >= MANY else [[one] for one in of_kind]
