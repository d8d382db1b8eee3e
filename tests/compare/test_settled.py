"""Looks before the last: what they end, that nothing is called different more often for it, and what they cost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfkit.compare import settled, stopping
from perfkit.compare.record import RecordedLaunch, Turn
from perfkit.compare.stopping import StoppingRule
from perfkit.statistics import ranks
from perfkit.statistics.verdicts import ALONE, BETTER, WORSE, Judgement, correct, judge
from tests.support.sweeps import rest

WORDS = "every verdict stood, of steps and parts, after {} launches"


def launch(first: float, second: float, tables: tuple[str, str] = ("a", "b")) -> RecordedLaunch:
    return RecordedLaunch(
        turns=[Turn(0, 0, [first]), Turn(1, 0, [second])], warmup_ns=[[], []], steady_from=[0, 0],
        peak_memory_bytes=[None, None], tables=list(tables),
    )  # fmt: skip


def part(*ratios: float, share: float = 0.4):
    return judge([1.0] * len(ratios), list(ratios), pairs=True, unit="launch", share=share)


def near(count: int) -> list[RecordedLaunch]:
    """Steps that are equal but for 1 % of noise."""
    return [launch(100, 100 * (1 + (0.01 + 0.0001 * i) * (-1) ** i)) for i in range(count)]


LEVEL = [part(*(1 + (0.01 + 0.0001 * i) * (-1) ** i for i in range(8)))]
SLOWER = [part(*(1.05 + 0.001 * i for i in range(8)))]


def test_equal_steps_end_it_where_no_part_hints_at_a_difference():
    """A part that is slower in all of eight launches, and that the correction leaves without a verdict, makes it go
    on."""
    stands, open_ = correct(SLOWER), correct([*SLOWER, *LEVEL * 2])
    assert (stands[0].verdict, open_[0].verdict) == ("worse", "cannot tell")
    for parts, ends in ((LEVEL, True), (stands, True), (open_, False), ([], False)):
        said = stopping.why(near(8), 2, StoppingRule(), 1.0, lambda parts=parts: [parts])
        assert said == (WORDS.format(8) if ends else ""), parts
    assert stopping.why(near(12), 2, StoppingRule(), 1.0, lambda: [LEVEL]) == WORDS.format(12)
    assert stopping.why(near(8), 2, StoppingRule(), 1.0) == "", "a program that is tried has no parts"
    assert stopping.why(near(9), 2, StoppingRule(), 1.0, lambda: [LEVEL]) == "", "no look"


def test_a_step_must_be_known_to_the_resolution_and_hint_at_nothing():
    def ends(launches: list[RecordedLaunch], **plan: float) -> bool:
        return bool(stopping.why(launches, 2, StoppingRule(**plan), 1.0, lambda: [LEVEL]))

    assert ends(near(8)) and not ends(near(8), resolution=0.01), "±1 % of noise hides a difference of 1 %"
    assert not ends([launch(100, 100 + (9 + 0.01 * i) * (-1) ** i) for i in range(8)]), "±9 % hide 5 %"
    hinting = [launch(100, 100 + 1.5 * (i % 3 - 0.4) + 0.001 * i) for i in range(8)]
    assert not ends(hinting), "slower in five of eight, by more: twenty may show it"
    assert ends([launch(100, 102 + 0.01 * i) for i in range(8)]), "2 % slower for certain"


def test_of_several_sides_the_parts_of_those_that_are_near_count():
    made = [
        RecordedLaunch(
            turns=[Turn(0, 0, [100.0]), Turn(1, 0, [100 + (1 + 0.01 * i) * (-1) ** i]), Turn(2, 0, [150.0 + 0.01 * i])],
            warmup_ns=[[]] * 3, steady_from=[0] * 3, peak_memory_bytes=[None] * 3, tables=["x"] * 3,
        )
        for i in range(9)
    ]  # fmt: skip
    plan = StoppingRule().for_sides(3)
    hinting = correct([*SLOWER, *LEVEL * 2])
    assert stopping.why(made, 3, plan, 1.0, lambda: [LEVEL, hinting]) == WORDS.format(9)
    assert stopping.why(made, 3, plan, 1.0, lambda: [hinting, LEVEL]) == ""


def test_unusable_profiles_settle_no_part(tmp_path):
    assert settled.parts_of(tmp_path, ["A", "B", "C"], [launch(1, 1, ("", ""))], 0.4) == [[], []]


SPREADS = (0.01, 0.012, 0.015, 0.015, 0.02, 0.02, 0.03, 0.04, 0.06, 0.08)  # of ten parts, beside a step of 1 %
OLD = ((8, 0.4), (20, 0.6))  # two looks, of which the first ended it where the step was far from equal alone


class Drawn:
    """Twenty launches: log ratios of a step and of ten parts that share a part of its noise, with heavy tails."""

    def __init__(self, random: np.random.Generator, step: float = 0.0, part: tuple[int, float] = (0, 0.0)) -> None:
        def noise(*shape: int) -> np.ndarray:
            return random.standard_t(3, shape) / math.sqrt(3)

        common = noise(20)
        self.step = 0.01 * common + step
        self.parts = np.array(SPREADS)[:, None] * (0.4 * common + math.sqrt(1 - 0.4**2) * noise(len(SPREADS), 20))
        self.parts[part[0]] += part[1]
        self.launches = [launch(1.0, math.exp(value)) for value in self.step]

    def ends(self) -> int:
        """The launches after which it stops."""
        plan = StoppingRule()
        for n in plan.looks():
            if stopping.why(self.launches[:n], 2, plan, 1.0, lambda n=n: [self.judged(n, plan.share(n))]):
                return n
        return plan.launches

    def two_looks(self) -> int:
        shift = ranks.paired(list(self.step[:8]), 1 - 0.05 * OLD[0][1])
        far = shift.p / OLD[0][1] <= ALONE and (shift.low > math.log(1.05) or shift.high < -math.log(1.05))
        return 8 if far else 20

    def different(self, n: int, share: float) -> bool:
        """Whether the step is called different after `n` launches."""
        shift = ranks.paired(list(self.step[:n]), 1 - 0.05 * share)
        return (shift.low > 0 or shift.high < 0) and shift.p / share <= ALONE

    def judged(self, n: int, share: float) -> list[Judgement]:
        lines = [list(line[:n]) for line in self.parts]
        alone = [
            judge([1.0] * n, [1.0] * n, pairs=True, unit="launch", differences=line, share=share) for line in lines
        ]
        return alone if min(one.p for one in alone) > ALONE else correct(alone, differences=lines)

    def found(self, n: int, share: float) -> set[int]:
        """The parts that are called different after `n` launches."""
        judged = self.judged(n, share)
        return {place for place, one in enumerate(judged) if one.verdict in (BETTER, WORSE) and one.adjusted_p}


def of_two(drawn: Drawn) -> tuple[int, float]:
    n = drawn.two_looks()
    return n, dict(OLD)[n]


def of_three(drawn: Drawn) -> tuple[int, float]:
    n = drawn.ends()
    return n, StoppingRule().share(n)


def test_equal_sides_stop_earlier_and_are_called_different_no_more_often():
    """The error is at most 2 %, of the step and of all parts together; most comparisons end before the last look."""
    tries = [Drawn(np.random.default_rng(seed)) for seed in range(1000, 1300)]
    ended = [of_three(drawn) for drawn in tries]
    step = sum(drawn.different(*end) for drawn, end in zip(tries, ended, strict=True))
    parts = sum(bool(drawn.found(*end)) for drawn, end in zip(tries, ended, strict=True))
    most = (0.02 + 2 * math.sqrt(0.02 * 0.98 / len(tries))) * len(tries)
    assert step <= most and parts <= most
    assert np.mean([n for n, _ in ended]) < 14 and sum(n == 8 for n, _ in ended) > len(tries) / 3


@pytest.mark.parametrize("place", [4, rest(0), rest(6)])
def test_a_part_that_is_five_percent_slower_is_found_as_before(place):
    tries = [Drawn(np.random.default_rng(seed), part=(place, 0.05)) for seed in range(2000, 2060)]
    before, now = (sum(place in drawn.found(*how(drawn)) for drawn in tries) for how in (of_two, of_three))
    assert now >= before - 0.05 * len(tries) and now >= 0.9 * len(tries)


def test_what_steps_at_the_limit_of_twenty_launches_lose():
    """Slower by 0.8 of the noise, of which two looks find seven in ten: three find at most a sixth fewer of all."""
    tries = [Drawn(np.random.default_rng(seed), step=0.008) for seed in range(3000, 3150)]
    before, now = (sum(drawn.different(*how(drawn)) for drawn in tries) for how in (of_two, of_three))
    assert 0.6 * len(tries) < before < len(tries) and before - now <= len(tries) / 6
