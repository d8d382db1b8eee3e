"""Time in which only some rows of a table ran: unions of intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfkit.analysis.roofline.roof import Booleans
from perfkit.intervals import Union

if TYPE_CHECKING:
    import pandas as pd


def exposed_ns(frame: pd.DataFrame, rows: Booleans) -> float | None:
    """Time in which of all rows of their device only `rows` ran; None where a start is unknown.

    It is the union of all intervals less the union of the others, summed over devices: what removing `rows` would free
    at most.
    """
    start = frame["start_ns"].to_numpy(float, na_value=np.nan)
    end = start + frame["duration_ns"].to_numpy(float)
    if not np.isfinite(start).all():
        return None
    device = frame["device"].astype(object).to_numpy()
    free = 0.0
    for one in dict.fromkeys(device[rows].tolist()):
        here = device == one
        free += Union(start[here], end[here]).length - Union(start[here & ~rows], end[here & ~rows]).length
    return free
