"""Lines of a generated program (a Thunder trace), which tell the place of the work inside them by their names.

    perfkit:line:backward:132:symbol:transformer.h.0.mlp|gelu|1

`perfkit.profile_names.line_name` writes them. What autograd does right behind a program, in the same node of its graph,
belongs to the program's last line, its return: sums of the gradients of a parameter that is used twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.profile_names import LINE, Line, line_of
from perfkit.readers.columns import Coded, Integers
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents
from perfkit.readers.kineto.place.places import OPTIMIZER, Place
from perfkit.tree import shares
from perfkit.tree.placement import LINE as BY_LINE
from perfkit.tree.placement import SUFFIX, Placement, Words, distinct_pairs

_COLUMNS = ("module", "operator", "placed_by", "serves", SUFFIX)


def by_lines(host: HostEvents, places: Place, chosen: Integers, passes: Coded) -> list[Placement]:
    """What lines say of the rows of the `chosen` host events (−1: none), whose passes are known.

    Nothing where the trace has no lines, and nothing of the optimizer.
    """
    known = [line_of(name) if name.startswith(LINE) else None for name in host.names]
    if not any(known):
        return []
    around = _around(host, places, np.array([line is not None for line in known]))
    event = np.where(chosen >= 0, around[np.maximum(chosen, 0)], -1)
    name = np.where(event >= 0, host.name[np.maximum(event, 0)], -1)
    optimizer = np.array([word == OPTIMIZER for word in [*passes.words, ""]])[passes.code]
    name = np.where(optimizer, -1, name)
    # One line of columns for each name of a range and pass that occur together.
    pairs, which = distinct_pairs(name, passes.code)
    told = [_told(known[n] if n >= 0 else None, passes.words[p] if p >= 0 else "") for n, p in pairs]
    columns = {key: Words.of([one.get(key) for one in told], which) for key in _COLUMNS}
    return [Placement(BY_LINE, columns)]


def _told(line: Line | None, pass_: str) -> dict[str, str | None]:
    """What a line says of a row in a pass, by column."""
    if line is None:
        return {}
    told: dict[str, str | None] = {SUFFIX: f"generated:{line.number}"} if line.number else {}
    if not line.served:
        return told
    parts = [shares.Member(pass_, module, operator, share) for module, operator, share in line.served]
    main = shares.main(parts)
    place = {"module": main.module, "operator": main.operator, "placed_by": line.evidence}
    return {**told, **place, "serves": shares.text(parts)}


def _around(host: HostEvents, places: Place, is_line: Any) -> Integers:
    """For each host event the line that it ran in, an event index, or −1."""
    lines = host.named(is_line)
    found = host.nearest(lines)
    index = np.flatnonzero(lines)
    nodes = places.node[index]
    inside = nodes >= 0
    if not inside.any():
        return found
    last: dict[int, int] = {}
    for node, event in zip(nodes[inside].tolist(), index[inside].tolist(), strict=True):
        last[node] = event  # in order of start, so the last one stays
    lasts = np.full(len(host), -1, np.int64)
    lasts[list(last)] = list(last.values())
    behind = np.where(places.node >= 0, lasts[np.maximum(places.node, 0)], -1)
    after = (found < 0) & (behind >= 0) & (host.category == OPERATOR)
    after &= host.start >= host.end[np.maximum(behind, 0)]
    return np.where(after, behind, found)
