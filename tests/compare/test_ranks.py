"""Rank tests against distributions counted out, their intervals, and verdicts under noise like a busy machine's."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.compare.stopping import StoppingRule
from perfkit.statistics import ranks
from perfkit.statistics.corrections import holm, together
from perfkit.statistics.verdicts import BETTER, SAME, UNKNOWN, WORSE, correct, judge
from tests.support.compare.noise import launches

values = st.lists(st.floats(-5, 5), min_size=6, max_size=9, unique=True)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_signed_ranks_are_distributed_as_all_signs_counted_out(n):
    counted = np.zeros(n * (n + 1) // 2 + 1)
    for signs in itertools.product((0, 1), repeat=n):
        counted[sum((i + 1) * s for i, s in enumerate(signs))] += 1
    assert ranks._signed_rank_counts(n) == pytest.approx(np.cumsum(counted) / counted.sum())


@pytest.mark.parametrize(("n", "m"), [(1, 3), (4, 4), (5, 3)])
def test_rank_sums_are_distributed_as_all_orders_counted_out(n, m):
    counted = np.zeros(n * m + 1)
    for chosen in itertools.combinations(range(n + m), m):
        counted[sum(chosen) - m * (m - 1) // 2] += 1
    assert ranks._rank_sum_counts(n, m) == pytest.approx(np.cumsum(counted) / counted.sum())


def test_many_values_are_approximated_as_well_as_they_are_counted(monkeypatch):
    random = np.random.default_rng(1)
    differences, first = list(random.normal(0.3, 1, 40)), list(random.normal(0, 1, 30))
    exact = ranks.paired(differences), ranks.groups(first, differences[:30])
    monkeypatch.setattr(ranks, "_EXACT", 0)
    near = ranks.paired(differences), ranks.groups(first, differences[:30])
    for one, other in zip(exact, near, strict=True):
        assert one.p == pytest.approx(other.p, abs=0.002)
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.02)


@given(values)
def test_the_interval_holds_the_shifts_that_the_test_does_not_reject(differences):
    found = ranks.paired(differences)
    inside, outside = (found.low + found.high) / 2, found.high + 1e-6
    assert ranks.paired([d - inside for d in differences]).p > 0.05
    assert ranks.paired([d - outside for d in differences]).p <= 0.05
    assert (found.p <= 0.05) == (not found.low <= 0 <= found.high) or 0 in (found.low, found.high)


@given(values, values)
def test_turning_two_groups_round_turns_the_result_round(first, second):
    one, other = ranks.groups(first, second), ranks.groups(second, first)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low), abs=1e-9)
    assert one.p == pytest.approx(other.p)


def test_too_few_values_show_nothing():
    assert ranks.paired([1.0] * 5).high == math.inf and ranks.paired([1.0] * 6).low == 1.0
    assert ranks.groups([1, 2, 3], [7, 8, 9]).low == -math.inf and ranks.groups([1, 2, 3, 4], [7, 8, 9, 10]).low == 3.0
    assert judge([1.0] * 5, [2.0] * 5, pairs=True, unit="launch").verdict == UNKNOWN
    assert "5 launches are too few" in judge([1.0] * 5, [2.0] * 5, pairs=True, unit="launch").why


def test_holms_correction_of_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([1.5])


def test_metrics_of_the_same_launches_are_corrected_together_as_counted_out():
    """All exchanges of sides, one by one: how often the smallest p of all metrics is as small as this one's."""
    random = np.random.default_rng(3)
    lines = random.normal(0.4, 1, (3, 7))
    p = [ranks.paired(list(line)).p for line in lines]
    smallest = []
    for signs in itertools.product((1, -1), repeat=7):
        smallest.append([ranks.paired(list(line * signs)).p for line in lines])
    order = sorted(range(3), key=p.__getitem__)
    expected, largest = [0.0] * 3, 0.0
    for place, metric in enumerate(order):
        rest = [min(one[i] for i in order[place:]) for one in smallest]
        largest = max(largest, sum(value <= p[metric] * (1 + 1e-9) for value in rest) / len(rest))
        expected[metric] = largest
    assert together(lines) == pytest.approx(expected)
    assert together([[1.0] * 8] * 12) == pytest.approx([1 / 128] * 12), "what always goes together is one test"
    assert all(a <= b + 1e-12 for a, b in zip(together(lines), holm(p), strict=True)), "never above Holm's"
    with pytest.raises(ValueError, match="difference for every launch"):
        together([])


def test_several_looks_err_no_oftener_than_one():
    """Equal sides under noise: eight or twelve launches may end it, at their share of the error, else twenty at
    theirs."""
    alarms, tries, plan = 0, 500, StoppingRule()
    for seed in range(tries):
        first, second = launches(np.random.default_rng(seed), plan.launches)
        looks = [
            judge(first[:n], second[:n], pairs=True, unit="launch", share=plan.share(n)).verdict in (BETTER, WORSE)
            for n in (*plan.looks(), plan.launches)
        ]
        alarms += any(looks)  # whatever the rule between the looks is
    assert alarms / tries <= 0.02 + 2 * math.sqrt(0.02 * 0.98 / tries)


@pytest.mark.parametrize("n", [8, 12])
def test_equal_metrics_beside_changed_ones_are_called_different_no_oftener_than_allowed(n):
    random = np.random.default_rng(n)
    alarms, tries = 0, 600
    for _ in range(tries):
        lines = 0.5 * random.standard_t(3, n) + random.standard_t(3, (6, n))
        lines[0] += 20
        raised = together(lines)
        alarms += min(raised[1:]) <= 0.02
    assert alarms / tries <= 0.02 + 2 * math.sqrt(0.02 * 0.98 / tries)


def test_each_verdict():
    first = [1.0 + 0.001 * i for i in range(10)]
    slower, same = [v * 1.05 for v in first], [v * (1 + 0.001 * (-1) ** i) for i, v in enumerate(first)]
    wide = [v * (1.5 if i % 2 else 0.7) for i, v in enumerate(first)]
    verdicts = [judge(first, second, pairs=True, unit="launch").verdict for second in (slower, same, wide)]
    assert verdicts == [WORSE, SAME, UNKNOWN]
    assert judge(slower, first, pairs=True, unit="launch").verdict == BETTER
    assert judge(first, slower, pairs=True, unit="launch", higher_is_better=True).verdict == BETTER
    assert judge([], first, pairs=False, unit="turn").verdict == UNKNOWN


def test_the_allowance_widens_the_interval_and_takes_a_verdict_away():
    first = [1.0 + 0.001 * i for i in range(10)]
    found = judge(first, [v * 1.04 for v in first], pairs=True, unit="round", allowance=0.05, resolution=0.06)
    assert (found.low, found.high) == pytest.approx((1.04 / 1.05, 1.04 * 1.05))
    assert found.verdict == SAME and found.detectable == pytest.approx(0.05)


def test_a_correction_takes_a_verdict_away_and_says_so():
    first = [1.0 + 0.001 * i for i in range(8)]
    one = judge(first, [v * 1.1 for v in first], pairs=True, unit="launch")
    assert one.verdict == WORSE and one.p == pytest.approx(2 / 256)
    corrected = correct([one, one, one])
    assert {c.verdict for c in corrected} == {UNKNOWN} and "correction for many tests" in corrected[0].why
    assert corrected[0].why.endswith("a verdict needs 2%, for which 9 launches are the fewest")
    nine = [1.0 + 0.001 * i for i in range(9)]
    enough = correct([judge(nine, [v * 1.1 for v in nine], pairs=True, unit="launch")] * 3)
    assert {c.verdict for c in enough} == {WORSE}
    mixed = judge(first, [v * 1.1 for v in first[:7]] + [0.9], pairs=True, unit="launch")
    assert "fewest" not in mixed.why
    many = judge([1.0 + 0.001 * i for i in range(12)], [1.1 + 0.001 * i for i in range(12)], pairs=True, unit="launch")
    assert [c.verdict for c in correct([many, many], higher_is_better={1})] == [WORSE, BETTER]
    few = judge(first[:6], [v * 1.1 for v in first[:6]], pairs=True, unit="launch")
    assert (
        few.verdict == UNKNOWN and few.why == "p is 0.031, and a verdict needs 2%, for which 7 launches are the fewest"
    )
    guarded = judge(first[:6], [v * 1.1 for v in first[:6]], pairs=True, unit="round", allowance=0.03)
    assert guarded.verdict == WORSE, "an allowance guards it"


def verdicts(tries: int, effect: float, **how: int) -> list[str]:
    return [
        judge(
            *launches(np.random.default_rng(seed), StoppingRule().launches, effect, **how), pairs=True, unit="launch"
        ).verdict
        for seed in range(tries)
    ]


def test_the_same_program_is_called_different_in_less_than_a_twentieth_of_noisy_comparisons():
    found = verdicts(600, 0.0)
    assert sum(v in (BETTER, WORSE) for v in found) / 600 <= 0.03


def test_an_effect_beyond_the_noise_is_found_and_in_the_right_direction():
    found = verdicts(100, 0.35)
    assert found.count(WORSE) >= 90 and BETTER not in found


def test_steps_as_units_would_have_raised_false_alarms():
    """Why the unit is a launch: the same noise, judged step by step, is called a difference most of the time."""
    alarms = 0
    for seed in range(60):
        a, b = launches(np.random.default_rng(seed), 40, turn_steps=1, rounds=1)
        blocks = sorted(a[:20]), sorted(b[20:])  # one side after the other, single steps
        alarms += judge(blocks[0], blocks[1], pairs=False, unit="step").verdict in (BETTER, WORSE)
    assert alarms / 60 > 0.2


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "now and then"])
def test_stopping_at_a_width_raises_no_more_false_alarms(kind):
    """Launches until half the interval is 1 %, looked at after each: the rule does not look at where 1 lies."""
    alarms, tries, stopped = 0, 400, 0
    for seed in range(tries):
        random = np.random.default_rng(seed)
        logs = {
            "normal": random.normal(0, 0.02, 60),
            "heavy tails": random.standard_t(3, 60) * 0.012,
            "now and then": random.normal(0, 0.01, 60) + (random.random(60) < 0.15) * random.normal(0, 0.08, 60),
        }[kind]
        for n in range(10, 61):
            shift = ranks.paired(list(logs[:n]))
            if shift.half <= 0.01:
                stopped += 10 < n < 60
                break
        alarms += not shift.low <= 0 <= shift.high
    assert stopped > tries / 4, "the rule is at work"
    assert alarms / tries <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / tries), "5 %, and twice the error of this many tries"


def test_one_launch_that_contradicts_all_others_does_not_hide_an_effect_among_ten_tests():
    plan = StoppingRule()
    n, share = plan.launches, plan.share(plan.launches)
    first = [1.0] * n
    odd = judge(first, [0.5, *(1.05 + 0.001 * i for i in range(n - 1))], pairs=True, unit="launch", share=share)
    level = judge(first, [1 + 0.001 * (-1) ** i for i in range(n)], pairs=True, unit="launch", share=share)
    assert correct([odd, *[level] * 9])[0].verdict == WORSE
    assert judge(first[:12], [0.5, *([1.05] * 11)], pairs=True, unit="launch").verdict != WORSE
