"""Lines of a generated program (a Thunder trace), which tell the place of the work inside them by their names.

    perfkit:line:backward:132:symbol:transformer.h.0.mlp|gelu|1

`perfkit.ranges.line_name` writes them. What autograd does right behind a program, in the same node of its graph,
belongs to the program's last line, its return: sums of the gradients of a parameter that is used twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.readers.columns import Coded, Integers
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents
from perfkit.readers.kineto.place.places import OPTIMIZER, Place
from perfkit.readers.own_ranges import LINE, Line, line_of
from perfkit.tree import shares


def on_lines(host: HostEvents, places: Place, chosen: Integers, columns: dict[str, Any]) -> dict[str, Any]:
    """The place columns of the rows that ran in lines; `columns` holds those of all `chosen` host events (−1: none).

    Returns the columns that change; nothing where the trace has no lines.
    """
    known = [line_of(name) if name.startswith(LINE) else None for name in host.names]
    if not any(known):
        return {}
    around = _around(host, places, np.array([line is not None for line in known]))
    event = np.where(chosen >= 0, around[np.maximum(chosen, 0)], -1)
    code = np.where(event >= 0, host.name[np.maximum(event, 0)], -1)
    mine = code >= 0
    passes = Coded.of(columns["pass"])
    words = np.array([*passes.words, None], dtype=object)[passes.code]
    mine &= words != OPTIMIZER
    rows: dict[str, list[Any]] = {
        name: list(np.asarray(_objects(columns[name])))
        for name in ("module", "operator", "range", "placed_by")
    }  # fmt: skip
    rows["serves"] = [None] * len(mine)
    for row in np.flatnonzero(mine).tolist():
        line = known[code[row]]
        assert line is not None
        _fill(rows, row, line, words[row])
    return {name: Coded.of(values) for name, values in rows.items()}


def _fill(rows: dict[str, list[Any]], row: int, line: Line, pass_: str | None) -> None:
    """Put what `line` says of a row into `rows`."""
    if line.number:
        path = f"generated:{line.number}"
        rows["range"][row] = f"{rows['range'][row]}/{path}" if rows["range"][row] else path
    if not line.served:
        return
    parts = [shares.Member(pass_ or "", module, operator, share) for module, operator, share in line.served]
    main = shares.main(parts)
    rows["module"][row], rows["operator"][row], rows["placed_by"][row] = main.module, main.operator, line.evidence
    rows["serves"][row] = shares.text(parts)


def _objects(values: Any) -> Any:
    coded = Coded.of(values)
    return np.array([*coded.words, None], dtype=object)[coded.code]


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
