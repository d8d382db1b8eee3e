"""Distinct numbers, medians and percentiles are those of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfkit.numbers import among, first_rows, median, numbered, percentile, unique


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize(("low", "high"), [(-3, 40), (0, 1), (-(2**40), 2**40)])
@pytest.mark.parametrize("count", [0, 1, 500])
def test_distinct_numbers(dtype: Any, low: int, high: int, count: int) -> None:
    limits = np.iinfo(dtype)
    values = np.random.default_rng(count).integers(max(low, limits.min), min(high, limits.max), count).astype(dtype)
    used, first, codes = np.unique(values, return_index=True, return_inverse=True)
    found, places = numbered(values)
    assert np.array_equal(unique(values), used) and unique(values).dtype == dtype
    assert np.array_equal(found, used) and np.array_equal(places, codes)
    assert np.array_equal(first_rows(places, len(found)), first)
    assert np.array_equal(among(values, values[::3]), np.isin(values, values[::3]))


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
def test_medians_and_percentiles(count: int) -> None:
    random = np.random.default_rng(count)
    for values in (random.integers(0, 10**12, count), random.random(count) * 1e9):
        assert median(values) == np.median(values)
        assert [percentile(values, p) for p in (1, 50, 90, 99.9)] == list(np.percentile(values, (1, 50, 90, 99.9)))
