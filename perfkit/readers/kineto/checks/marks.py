"""The trace's own annotations of the GPU: a second witness of when the activities of a range ran."""

from __future__ import annotations

import numpy as np

from perfkit.readers.columns import Booleans, Integers
from perfkit.readers.kineto.checks.evidence import DOES_NOT_APPLY, ROUNDING, Evidence, Found
from perfkit.readers.kineto.decode.events import distinct

_MOST_WRONG = 0.05  # of the annotations: those at the ends of a capture lack some of their activities


def agree(e: Evidence) -> Found:
    """They begin and end with an activity of their stream."""
    marks, device, of = e.device.marks, e.device, len(e.device.marks)
    if not of or not len(device):
        return DOES_NOT_APPLY
    lanes, lane = distinct(_lane(device.device, device.stream))
    wanted, wrong = _lane(marks.device, marks.stream), np.ones(of, bool)
    for code, value in enumerate(lanes.tolist()):
        mine, own = wanted == value, lane == code
        begin = _known(marks.start[mine], np.sort(device.start[own]))
        wrong[mine] = ~(begin & _known(marks.end[mine], np.sort(device.end[own])))
    events = int(wrong.sum())
    words = f"{events} of {of} annotations of the GPU begin or end where no activity of their stream does"
    return Found(
        holds=events <= _MOST_WRONG * of, figure=events / of, events=events, of=of, needed=False,
        sentence=words if events else "",
    )  # fmt: skip


def _lane(device: Integers, stream: Integers) -> Integers:
    """One number a stream of a device."""
    return (device.astype(np.int64) << 32) + stream


def _known(moments: Integers, sorted_: Integers) -> Booleans:
    """For each moment whether one of the `sorted_` is as good as the same."""
    found: Booleans = np.searchsorted(sorted_, moments + ROUNDING, "right") > np.searchsorted(
        sorted_, moments - ROUNDING
    )
    return found
