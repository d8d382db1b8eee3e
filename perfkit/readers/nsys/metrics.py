"""GPU metrics of an export of Nsight Systems, as tracks (`nsys profile --gpu-metrics-devices`)."""

from __future__ import annotations

import numpy as np

from perfkit.readers.counters import Track, tracks_of
from perfkit.readers.nsys.database import ABSENT, Database

SAMPLES, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_DEVICE = 0xFF  # the part of a typeId that is the number of the device


def read_tracks(database: Database) -> list[Track]:
    """The tracks of an export, none where it holds no GPU metrics. Times are those of its activities."""
    if not database.has(SAMPLES, "timestamp", "metricId", "value"):
        return []
    samples = database.integers(SAMPLES, ("timestamp", "typeId", "metricId", "value"))
    whole = (samples["timestamp"] != ABSENT) & (samples["metricId"] != ABSENT)
    time, metric, kind = samples["timestamp"][whole], samples["metricId"][whole], samples["typeId"][whole]
    value = np.where(samples["value"][whole] == ABSENT, np.nan, samples["value"][whole].astype(float))
    names = _names(database)
    keys, code = np.unique(np.stack([kind, metric]), axis=1, return_inverse=True)
    code = code.reshape(-1)
    return tracks_of(
        (
            names.get((type_, number)) or names.get((ABSENT, number)) or f"metric {number}",
            0 if type_ == ABSENT else type_ & _DEVICE,
            time[code == place],
            value[code == place],
        )
        for place, (type_, number) in enumerate(keys.T.tolist())
    )


def _names(database: Database) -> dict[tuple[int, int], str]:
    """The names of metrics by type and number; by number alone where an export has no types."""
    has_type = database.has(NAMES, "typeId")
    columns = ("metricId", "metricName", *(("typeId",) if has_type else ()))
    found: dict[tuple[int, int], str] = {}
    for number, name, *type_ in database.texts(NAMES, columns):
        if number.lstrip("-").isdecimal():
            kind = int(type_[0]) if type_ and type_[0].lstrip("-").isdecimal() else ABSENT
            found[kind, int(number)] = " ".join(name.split())[:200]
            found.setdefault((ABSENT, int(number)), found[kind, int(number)])
    return found
