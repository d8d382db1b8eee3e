"""Warm-up, drift, outliers and steps in a history, in series made for it."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit.statistics.series import change_points, drift, outliers, warmup_end


def steady(n: int, level: float = 10.0, seed: int = 0) -> list[float]:
    return list(level * np.random.default_rng(seed).lognormal(0, 0.01, n))


@pytest.mark.parametrize("first", [[], [100.0], [100.0, 40.0, 15.0], [80.0] * 6])
def test_the_warm_up_ends_where_the_level_is_reached(first):
    assert warmup_end([*first, *steady(20)]) == len(first)


def test_one_burst_is_no_warm_up_and_a_series_that_keeps_falling_is_not_steady():
    series = steady(20)
    series[3] = 60.0
    assert warmup_end(series) == 0
    assert warmup_end([100.0 * 0.9**i for i in range(20)]) is None
    assert warmup_end([5.0, 5.0, 5.0]) is None


def test_outliers_are_far_above_and_only_above():
    series = steady(30)
    series[4], series[9], series[20] = 20.0, 1.0, 10.2
    assert outliers(series) == [4]
    assert outliers([1.0, 100.0]) == []


def test_drift_is_a_trend_and_not_noise():
    assert drift([10.0 + 0.2 * i for i in range(20)]) == pytest.approx(0.25, abs=0.05)
    assert sum(drift(steady(20, seed=seed)) is not None for seed in range(100)) <= 5
    assert drift([1.0, 2.0, 3.0]) is None


def test_a_history_is_split_at_its_steps():
    history = [*steady(10, 10.0), *steady(8, 11.0, 1), *steady(9, 9.0, 2)]
    assert change_points(history) == [10, 18]
    assert change_points(steady(30)) == [] and change_points([1.0, 2.0]) == []
    false = sum(bool(change_points(list(10 * np.random.default_rng(s).lognormal(0, 0.05, 25)))) for s in range(60))
    assert false <= 6
