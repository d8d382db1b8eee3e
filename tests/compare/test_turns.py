"""Series recorded in turns: compared by parts that are next to each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfkit.compare.metrics import differences_of
from perfkit.compare.sides import LAUNCH, Values
from perfkit.statistics.interleaved import PARTS, log_ratio


def recorded(rng: np.random.Generator) -> list[np.ndarray]:
    """Two equal series of 120 steps of 1 ms, recorded there and back in 24 parts each; the machine is half as fast for
    a while now and then (five turns on average), and every step has noise of 1 %."""
    slow, found = bool(rng.integers(2)), [list[float](), list[float]()]
    for part in range(PARTS):
        for side in (0, 1) if part % 2 == 0 else (1, 0):
            slow ^= bool(rng.random() < 0.2)
            found[side] += ((1 + slow) * np.exp(rng.normal(0, 0.01, 5))).tolist()
    return [np.array(one) for one in found]


def test_a_machine_that_changes_its_pace_moves_the_pairs_of_parts_far_less_than_the_medians():
    rng = np.random.default_rng(0)
    tries = [recorded(rng) for _ in range(300)]
    whole = [abs(math.log(np.median(b) / np.median(a))) for a, b in tries]
    parts = [abs(log_ratio(a, b)) for a, b in tries]
    assert sum(one > 0.02 for one in whole) > 60, "the medians lie with one pace here, and with the other there"
    assert sum(one > 0.02 for one in parts) == 0


@pytest.mark.parametrize("sizes", [(120, 120), (116, 120), (4, 120), (4, 4), (7, 5), (1, 1)])
def test_exchanging_the_series_changes_the_sign_alone(sizes):
    rng = np.random.default_rng(sum(sizes))
    first, second = (np.exp(rng.normal(0, 0.3, size)) for size in sizes)
    assert log_ratio(first, second) == -log_ratio(second, first)
    assert log_ratio(first, first) == 0


def test_short_series_are_compared_step_by_step():
    assert log_ratio(np.array([1.0, 2.0, 4.0]), np.array([2.0, 4.0, 8.0])) == pytest.approx(math.log(2))
    assert log_ratio(np.arange(1.0, 5.0), np.repeat(np.arange(1.0, 5.0), 6)) == 0
    assert len({log_ratio(np.ones(PARTS * k), np.full(PARTS * k, 3.0)) for k in (1, 2, 5)}) == 1


@pytest.mark.parametrize("odd", [[], [0.0, 1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_nothing_is_said_of_series_without_a_ratio(odd):
    assert log_ratio(np.array(odd), np.ones(2)) is None


def test_a_launch_without_such_steps_keeps_its_own_ratio():
    first = Values([1.0, 1.0], LAUNCH, True, "x", [np.ones(4), np.zeros(4)])
    second = Values([9.0, 1.2], LAUNCH, True, "x", [np.full(4, 1.1), np.full(4, 1.2)])
    assert differences_of(first, second) == pytest.approx([math.log(1.1), math.log(1.2)])
    assert differences_of(Values([1.0], LAUNCH), Values([2.0], LAUNCH)) == [math.log(2)]
