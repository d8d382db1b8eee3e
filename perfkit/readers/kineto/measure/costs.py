"""Shapes, FLOP and bytes of rows, from the kinds of calls that they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.readers.columns import Coded, Integers
from perfkit.readers.kineto.decode.events import values_at
from perfkit.readers.kineto.measure.rows import Rows
from perfkit.table import FLOP_COLUMNS, RESOURCES


def costed(rows: Rows, chosen: Integers) -> dict[str, Any]:
    """Shapes, FLOP and bytes of the host events `chosen`; absent where the kind of call has no cost."""
    kinds = rows.kinds
    code = values_at(rows.kind, chosen)
    result: dict[str, Any] = {"shapes": shapes_of(rows, code)}
    units = {unit for k in kinds if k.cost for unit in k.cost.flop}
    for resource, column in zip(RESOURCES, FLOP_COLUMNS, strict=True):
        if resource not in units:
            continue
        values = [k.cost.flop.get(resource, np.nan) if k.cost else np.nan for k in kinds]
        if not np.isnan(values).all():
            result[column] = _numbers(values, code)
    result["bytes_read"] = _numbers([k.cost.bytes_read if k.cost else np.nan for k in kinds], code)
    result["bytes_written"] = _numbers([k.cost.bytes_written if k.cost else np.nan for k in kinds], code)
    return result


def shapes_of(rows: Rows, code: Integers) -> Coded:
    """Shapes and dtypes of kinds of calls as text; `code` indexes `rows.kinds`, −1 for none."""
    of_kind = Coded.of([k.shapes for k in rows.kinds])
    return Coded(of_kind.words, np.append(of_kind.code, np.int32(-1))[code])


def _numbers(values: list[float], code: Integers) -> Any:
    return np.append(np.asarray(values, dtype=float), np.nan)[code]
