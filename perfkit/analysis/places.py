"""Which parts of the logical tree (step / pass / layer / module / operator) each row of a kernel table serves.

One line per row and member: most rows serve one logical operator; a fused kernel serves several, and its column
`serves` gives each one's share. Operators have one name whichever backend ran them (`perfkit.analysis.logical`), so
that the lines of two backends can be laid side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perfkit import members
from perfkit.analysis.logical import logical_name

if TYPE_CHECKING:
    import pandas as pd

NOT_PLACED = "not placed"


def places(frame: pd.DataFrame) -> pd.DataFrame:
    """The places of the rows of `frame`, a kernel table's frame or a part of one.

    Columns: `row`, the position in `frame` from 0 (not its index); `pass`, `layer` (Int64), `module`, `operator`;
    `share` of the row's time, work and bytes, which sum to 1 over each row's lines; `fused`, whether the row has
    several lines; `placed_by` as in the table. A row whose pass is unknown has one line, with pass `NOT_PLACED`; a
    module or operator that is unknown is absent.
    """
    import pandas as pd

    texts = {name: _texts(frame[name]) for name in ("pass", "module", "operator", "placed_by", "serves")}
    own = list(zip(*(texts[name] for name in ("pass", "module", "operator")), strict=True))
    layer_of = _layers(frame, texts["module"])
    lines: list[tuple[Any, ...]] = []
    for row, (pass_, module, operator) in enumerate(own):
        by = texts["placed_by"][row] or "none"
        served = _members(texts["serves"][row])
        if len(served) > 1:
            lines += [
                (
                    row,
                    m.pass_ or NOT_PLACED,
                    layer_of(m.module),
                    m.module or None,
                    m.operator or None,
                    m.share,
                    True,
                    by,
                )
                for m in served
            ]
        else:
            name = logical_name(operator) if operator else None
            lines.append((row, pass_ or NOT_PLACED, layer_of(module, row), module, name, 1.0, False, by))
    columns = ["row", "pass", "layer", "module", "operator", "share", "fused", "placed_by"]
    found = pd.DataFrame(lines, columns=columns)
    text = dict.fromkeys(("pass", "module", "operator", "placed_by"), "string")
    return found.astype(text | {"row": "int64", "layer": "Int64", "share": "float64", "fused": "bool"})


def _texts(column: pd.Series) -> list[str | None]:
    return [None if v is None or v != v else str(v) for v in column.astype(object).where(column.notna(), None)]


@lru_cache(maxsize=4096)
def _members(text: str | None) -> Sequence[members.Member]:
    """The members that `text` tells, those whose operators have one name after all taken together."""
    if not text:
        return ()
    read = members.read(text)
    return members.split([(m.pass_, m.module, logical_name(m.operator)) for m in read], [m.share for m in read])


def _layers(frame: pd.DataFrame, modules: Sequence[str | None]) -> Any:
    """A function from a module path, and the row that has it, to the layer's index or None.

    The table tells the layer of each row's own module. For another module of a fused row it follows from them: the
    layer stands in the path behind the same prefix.
    """
    numbers = [None if v is None else int(v) for v in frame["layer"].astype(object).where(frame["layer"].notna(), None)]
    prefixes = {
        ".".join(parts[:i])
        for module, layer in {(m, n) for m, n in zip(modules, numbers, strict=True) if m and n is not None}
        for parts in [module.split(".")]
        for i, part in enumerate(parts)
        if part == str(layer)
    }
    known = {m: n for m, n in zip(modules, numbers, strict=True) if m and n is not None}

    def layer_of(module: str | None, row: int | None = None) -> int | None:
        if row is not None:
            return numbers[row]
        if not module or module in known:
            return known.get(module or "")
        parts = module.split(".")
        for i in range(1, len(parts)):
            if ".".join(parts[:i]) in prefixes and parts[i].isdigit():
                return int(parts[i])
        return None

    return layer_of
