"""Copies and collectives, which could overlap kernels: their time, and how much of it nothing else covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfkit.analysis.roofline.roof import Booleans
from perfkit.analysis.step_results import COLLECTIVE, COPY, Exposed
from perfkit.intervals import Union

if TYPE_CHECKING:
    import pandas as pd

WORTH = 0.01  # of the time of all rows


def of_frame(frame: pd.DataFrame, steps: int) -> list[Exposed]:
    """Copies by name (`Memcpy HtoD (Pageable -> Device)`) and collectives all together, a step, the longest first.

    Only those that take `WORTH` of all time: what else covers them costs a sort of all rows to know.
    """
    candidates = [(name, COPY, rows) for name, rows in _copies(frame)]
    asks = (frame["kind"] == "cpu_op").to_numpy(bool, na_value=False)  # a thread of a library does the rest
    collective = (frame["family"] == "collective").to_numpy(bool, na_value=False) & ~asks
    if collective.any():
        candidates.append(("collectives", COLLECTIVE, collective))
    time = np.nan_to_num(frame["duration_ns"].to_numpy(float))
    total = time.sum()
    found = [_one(frame, *candidate, steps) for candidate in candidates if time[candidate[2]].sum() >= WORTH * total]
    return sorted(found, key=lambda one: -one.time_ns)


def _copies(frame: pd.DataFrame) -> list[tuple[str, Booleans]]:
    """The rows of each name of copies."""
    places = np.flatnonzero((frame["kind"] == "memcpy").to_numpy(bool, na_value=False))
    names = frame["name"].iloc[places].tolist()
    by_name: dict[str, list[int]] = {}
    for name, place in zip(names, places.tolist(), strict=True):
        by_name.setdefault(str(name), []).append(place)
    masks = []
    for name, chosen in by_name.items():
        mask = np.zeros(len(frame), bool)
        mask[chosen] = True
        masks.append((name, mask))
    return masks


def _one(frame: pd.DataFrame, name: str, kind: str, rows: Booleans, steps: int) -> Exposed:
    alone = exposed_ns(frame, rows)
    return Exposed(
        name=name,
        kind=kind,
        count=float(rows.sum()) / steps,
        time_ns=float(np.nansum(frame["duration_ns"].to_numpy(float)[rows])) / steps,
        exposed_ns=None if alone is None else alone / steps,
    )


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
