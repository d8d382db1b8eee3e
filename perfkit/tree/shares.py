"""Members of a kernel that serves several logical operators, each with its share of the kernel.

As text, in the column `serves` of the kernel table, a member is `pass|module|operator|share`, and `;` joins members:

    forward|transformer.h.0|add|0.5;forward|transformer.h.0.ln_2|layer_norm|0.5

Shares are positive and sum to 1. `split` says how they are found: in proportion to the weights of the members, what
each would take at least as a kernel of its own (its minimal time or bytes by the cost model); where a weight is not
known, or all are 0, equal shares. An empty module or operator is one that is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_TOLERANCE = 1e-3  # of the sum of shares read from text, which have six digits
_RESERVED = str.maketrans("|;", "__")


class OperatorShare(NamedTuple):
    """One logical operator that a kernel serves, and its share of the kernel, 0 to 1."""

    pass_: str
    module: str
    operator: str
    share: float


class Work(NamedTuple):
    """The least work of a call: FLOP by unit, and bytes. `parts` divide it over kernels by their names, as
    `CostModel.parts` has it; empty where one kernel does it all."""

    flop: Mapping[str, float]
    bytes_read: float
    bytes_written: float
    parts: Mapping[str, float] = {}


class CallSite(NamedTuple):
    """One call of a kernel in the code that a compiler generated.

    `name` is what a profiler shows for it, `line` its line in the generated text (from 1; 0: unknown), and `members`
    say what it serves; their pass is "", for that is the one in which the code runs. `work` is None where it is not
    known. `source` is the line of the model that most of it comes from, as `file|line|function`; "" for unknown.
    """

    name: str
    line: int
    members: tuple[OperatorShare, ...]
    work: Work | None = None
    source: str = ""


def split(places: Iterable[tuple[str, str, str]], weights: Iterable[float | None]) -> list[OperatorShare]:
    """Members for `places` (pass, module, operator) by their `weights`; a place that occurs again adds its weight.

    Where a weight is None or not finite, or none is above 0, every place has the same share, however often it occurs.
    A place without weight among others that have some (a view, a constant) gets no share, and is left out.
    """
    total: dict[tuple[str, str, str], float] = {}
    known = True
    for place, weight in zip(places, weights, strict=True):
        known = known and weight is not None and math.isfinite(weight) and weight >= 0
        total[place] = total.get(place, 0.0) + (weight or 0.0)
    whole = sum(total.values())
    if not known or whole <= 0:
        total, whole = dict.fromkeys(total, 1.0), float(len(total))
    return [OperatorShare(*place, weight / whole) for place, weight in total.items() if weight > 0]


def text(members: Sequence[OperatorShare]) -> str | None:
    """The members as the kernel table holds them; None for fewer than two, which its place columns name."""
    if len(members) < 2:
        return None
    return ";".join(
        f"{_plain(m.pass_)}|{_plain(m.module)}|{_plain(m.operator)}|{max(m.share, 1e-6):.6g}" for m in members
    )


def read(written: str) -> list[OperatorShare]:
    """The members that `text` wrote, shares scaled to sum to exactly 1. Raises `ValueError` for any other text."""
    found = []
    for part in written.split(";"):
        words = part.split("|")
        if len(words) != 4:
            raise ValueError(f"{part!r} is not pass|module|operator|share")
        share = float(words[3])
        if not 0 < share <= 1:
            raise ValueError(f"the share {words[3]} is not between 0 and 1")
        found.append(OperatorShare(words[0], words[1], words[2], share))
    whole = sum(m.share for m in found)
    if abs(whole - 1) > _TOLERANCE * len(found):
        raise ValueError(f"the shares sum to {whole:g}, not to 1")
    return [m._replace(share=m.share / whole) for m in found]


def main(members: Sequence[OperatorShare]) -> OperatorShare:
    """Return the member that represents the kernel in the columns that hold one place: the one with the largest share.

    Of equal ones the last, whose result the kernel is there for.
    """
    largest = max(m.share for m in members)
    return [m for m in members if m.share >= largest * (1 - 1e-9)][-1]


def _plain(word: str) -> str:
    return word.translate(_RESERVED)
