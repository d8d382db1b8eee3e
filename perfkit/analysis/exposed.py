"""Copies and collectives, which could run beside kernels: their time, and how much of it nothing else covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfkit.analysis.overlap import exposed_ns
from perfkit.analysis.results import Exposed
from perfkit.analysis.roofline import Booleans

if TYPE_CHECKING:
    import pandas as pd

COPY, COLLECTIVE = "copy", "collective"


def of_frame(frame: pd.DataFrame, steps: int) -> list[Exposed]:
    """Copies by name (`Memcpy HtoD (Pageable -> Device)`) and collectives all together, a step, the longest first."""
    found = []
    is_copy = frame["kind"].astype(object).to_numpy() == "memcpy"
    if is_copy.any():
        names = frame["name"].astype(object).to_numpy()
        found = [
            _one(frame, str(name), COPY, is_copy & (names == name), steps)
            for name in dict.fromkeys(names[is_copy].tolist())
        ]
    collective = frame["family"].astype(object).to_numpy() == "collective"
    if collective.any():
        found.append(_one(frame, "collectives", COLLECTIVE, collective, steps))
    return sorted(found, key=lambda one: -one.time_ns)


def _one(frame: pd.DataFrame, name: str, kind: str, rows: Booleans, steps: int) -> Exposed:
    alone = exposed_ns(frame, rows)
    return Exposed(
        name=name,
        kind=kind,
        count=float(rows.sum()) / steps,
        time_ns=float(np.nansum(frame["duration_ns"].to_numpy(float)[rows])) / steps,
        exposed_ns=None if alone is None else alone / steps,
    )
