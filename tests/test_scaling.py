"""The fitted exponent of cost against size."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit.statistics import exponent


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, 3.0])
def test_a_power_law_is_found_exactly(power):
    sizes = [64, 128, 256, 512, 1024]
    slope, low, high = exponent(sizes, [5.0 * s**power for s in sizes])
    assert slope == pytest.approx(power, abs=1e-9)
    assert low == pytest.approx(power, abs=1e-6) and high == pytest.approx(power, abs=1e-6)


def test_the_interval_holds_the_exponent_as_often_as_it_says():
    random = np.random.default_rng(1)
    sizes = np.geomspace(64, 4096, 9)
    held = 0
    for _ in range(400):
        _, low, high = exponent(list(sizes), list(sizes**2 * np.exp(random.normal(0, 0.1, 9))))
        held += low <= 2.0 <= high
    assert 0.92 <= held / 400 <= 0.98


def test_two_sizes_have_no_interval_and_one_has_no_exponent():
    assert exponent([1, 10], [1, 1000]) == (pytest.approx(3.0), None, None)
    with pytest.raises(ValueError, match="two sizes"):
        exponent([5, 5], [1, 2])
    with pytest.raises(ValueError, match="positive"):
        exponent([1, 2], [0, 2])
