"""Unions of intervals, against counting each nanosecond."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from perfkit.analysis.exposed import exposed_ns
from perfkit.intervals import Union

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.booleans(), st.sampled_from(["a", "b"])))


@given(INTERVALS)
def test_the_union_covers_what_any_interval_covers(intervals: list[tuple[int, int, bool, str]]) -> None:
    start = np.array([s for s, *_ in intervals], float)
    end = start + np.array([length for _, length, *_ in intervals], float)
    covered = {t for s, length, *_ in intervals for t in range(s, s + length)}
    assert Union(start, end).length == len(covered)


@given(INTERVALS)
def test_exposed_is_what_only_the_chosen_rows_cover(intervals: list[tuple[int, int, bool, str]]) -> None:
    frame = pd.DataFrame(
        {
            "start_ns": [float(s) for s, *_ in intervals],
            "duration_ns": [float(length) for _, length, *_ in intervals],
            "device": [device for *_, device in intervals],
        }
    )
    chosen = np.array([mine for _, _, mine, _ in intervals], bool)
    alone = 0
    for device in ("a", "b"):
        by = {mine: {t for s, n, m, d in intervals for t in range(s, s + n) if (m, d) == (mine, device)} for mine in
              (True, False)}  # fmt: skip
        alone += len(by[True] - by[False])
    assert exposed_ns(frame, chosen) == alone


def test_without_starts_nothing_is_known() -> None:
    frame = pd.DataFrame({"start_ns": [np.nan], "duration_ns": [1.0], "device": ["a"]})
    assert exposed_ns(frame, np.array([True])) is None
