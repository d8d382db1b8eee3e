"""How calls are timed: with a clock that the test moves."""

from __future__ import annotations

import pytest

from perfkit.bench import measure
from perfkit.bench.results import COLD, WARM


class FakeTime:
    """A clock that moves only by a call."""

    def __init__(self):
        self.now = 0
        self.calls = []

    def __call__(self):
        return self.now

    def call(self, name, ns):
        def run():
            self.calls.append(name)
            self.now += ns

        return run


@pytest.fixture
def fake():
    return FakeTime()


@pytest.fixture
def clock(fake):
    return measure.CpuClock(0.0, fake)


def test_a_warm_sample_is_the_mean_of_its_calls_after_one_that_does_not_count(clock, fake):
    assert clock.warm(fake.call("a", 700), 5) == 700
    assert len(fake.calls) == 6


def test_a_cold_sample_is_one_call(clock, fake):
    assert clock.cold(fake.call("a", 700)) == 700
    assert len(fake.calls) == 1


@pytest.mark.parametrize(("ns", "count"), [(100, 1000), (1_000, 100), (50_000, 2), (10_000_000, 1), (0, 1000)])
def test_short_calls_are_repeated_within_a_sample(clock, fake, ns, count):
    assert measure.repetitions(clock, fake.call("a", ns)) == count


@pytest.mark.parametrize("cache", [WARM, COLD])
def test_ways_take_turns_and_each_gets_its_least_samples(clock, fake, cache):
    calls = [fake.call("a", 10), fake.call("b", 30)]
    samples = measure.in_turns(clock, calls, [1, 1], cache, seconds=1e-9)
    assert samples == [[10.0] * 6, [30.0] * 6]
    a_turn = measure.A_TURN * (2 if cache == WARM else 1)
    assert fake.calls == [*"a" * a_turn, *"b" * a_turn] * 2


def test_there_is_an_end_to_samples(clock, fake):
    (samples,) = measure.in_turns(clock, [fake.call("a", 1)], [1], WARM, seconds=1e9)
    assert measure.MOST_SAMPLES <= len(samples) < measure.MOST_SAMPLES + measure.A_TURN


def test_memory_of_the_caches_is_read_before_a_cold_call():
    clock = measure.CpuClock(40e6)
    assert clock._buffer.nbytes == 80_000_000
