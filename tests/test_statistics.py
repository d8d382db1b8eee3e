from __future__ import annotations

import time

import numpy as np
import pytest

from perfkit import statistics
from perfkit.statistics import Estimate, median, ratio_of_medians


def lognormal(rng: np.random.Generator, n: int, centre: float = 1.0, sigma: float = 0.3) -> np.ndarray:
    """Skewed like step times; the true median is `centre`."""
    return centre * rng.lognormal(0.0, sigma, n)


@pytest.mark.parametrize("n", [5, 10, 25])
def test_interval_of_the_median_covers_the_truth(n):
    rng = np.random.default_rng(n)
    tries = 300
    hits = 0
    for _ in range(tries):
        estimate = median(lognormal(rng, n))
        hits += estimate.low <= 1.0 <= estimate.high
    assert 0.90 <= hits / tries <= 0.995


def test_interval_of_the_ratio_covers_the_truth():
    rng = np.random.default_rng(7)
    tries = 200
    hits = 0
    for _ in range(tries):
        estimate = ratio_of_medians(lognormal(rng, 12, 3.0), lognormal(rng, 20, 2.0))
        hits += estimate.low <= 1.5 <= estimate.high
    assert 0.90 <= hits / tries <= 1.0


def test_more_samples_narrow_the_interval_and_outliers_do_not_move_the_median():
    rng = np.random.default_rng(3)
    few, many = median(lognormal(rng, 10)), median(lognormal(rng, 1000))
    assert many.high - many.low < (few.high - few.low) / 3
    steady = [10.0] * 30
    assert median([*steady, 1e6]) == Estimate(10.0, 10.0, 10.0, 31)


def test_same_samples_give_the_same_interval_whatever_was_drawn_before():
    samples = list(lognormal(np.random.default_rng(1), 15))
    first = median(samples)
    median([1.0, 5.0, 2.0, 7.0, 9.0])
    np.random.seed(99)
    assert median(samples) == first
    assert first.low < first.value < first.high
    assert first.method == statistics.BOOTSTRAP


@pytest.mark.parametrize("samples", [[4.0], [4.0, 6.0], [6.0, 4.0, 5.0], [7.0, 4.0, 5.0, 6.0]])
def test_few_samples_give_their_range_and_say_so(samples):
    estimate = median(samples)
    assert (estimate.low, estimate.high, estimate.n) == (min(samples), max(samples), len(samples))
    assert estimate.method == statistics.RANGE


def test_ratio_of_few_samples_spans_the_extremes():
    assert ratio_of_medians([8.0, 10.0, 12.0], [4.0, 5.0]) == Estimate(10 / 4.5, 8 / 5, 12 / 4, 2, statistics.RANGE)


def test_ratio_is_a_speed_up_and_turns_round():
    rng = np.random.default_rng(2)
    before, after = lognormal(rng, 40, 2.0, 0.05), lognormal(rng, 40, 1.0, 0.05)
    faster, slower = ratio_of_medians(before, after), ratio_of_medians(after, before)
    assert faster.value == pytest.approx(1 / slower.value)
    assert faster.low > 1.8
    assert faster.high < 2.2
    assert slower.low == pytest.approx(1 / faster.high, rel=0.02)


def test_unusable_samples_are_refused():
    for bad in ([], [1.0, float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="sample"):
            median(bad)
    with pytest.raises(ValueError, match="positive"):
        ratio_of_medians([1.0], [0.0])


def test_many_samples_stay_quick_and_bounded():
    samples = lognormal(np.random.default_rng(5), 20_000)
    start = time.process_time()
    estimate = median(samples)
    assert time.process_time() - start < 5
    assert estimate.low <= 1.01
    assert estimate.high >= 0.99
