from __future__ import annotations

import gc

import pytest

from perfkit.timing import Samples, collector_off, measure, synchronizer


class FakeClock:
    """Time that passes only on request."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def pass_ns(self, ns: int) -> None:
        self.now += ns


def test_warmup_is_recorded_apart_and_every_step_is_exact():
    clock = FakeClock()
    durations = iter([900, 50, 10, 11, 12])
    samples = measure(lambda: clock.pass_ns(next(durations)), warmup=2, steps=3, clock=clock)
    assert samples == Samples([10.0, 11.0, 12.0], [900.0, 50.0])


def test_device_work_still_queued_counts():
    """A step that only queues work: the time passes in synchronize, and work queued before the step does not count."""
    clock = FakeClock()
    queued = [700]

    def synchronize() -> None:
        while queued:
            clock.pass_ns(queued.pop())

    def step() -> None:
        clock.pass_ns(5)
        queued.append(100)

    samples = measure(step, warmup=0, steps=2, clock=clock, synchronize=synchronize)
    assert samples.ns == [105.0, 105.0]


def test_what_happens_before_and_after_a_step_is_not_timed():
    clock = FakeClock()
    seen = []

    def beside(what: str):
        def happen(index: int) -> None:
            seen.append((what, index))
            clock.pass_ns(1_000_000)

        return happen

    samples = measure(
        lambda: clock.pass_ns(7), warmup=1, steps=2, clock=clock, before=beside("before"), after=beside("after")
    )
    assert samples == Samples([7.0, 7.0], [7.0])
    assert seen == [(what, index) for index in range(3) for what in ("before", "after")]


def test_collector_is_off_while_timing_and_restored_even_after_an_error():
    states = []
    measure(lambda: states.append(gc.isenabled()), warmup=1, steps=2)
    assert states == [False, False, False]
    assert gc.isenabled()

    def broken() -> None:
        raise RuntimeError("step died")

    with pytest.raises(RuntimeError, match="step died"):
        measure(broken, warmup=0, steps=1)
    assert gc.isenabled()


def test_a_collector_found_off_stays_off_and_does_not_collect(monkeypatch):
    """A collection before the first step of a turn leaves the caches cold."""
    collections: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(None))
    gc.disable()
    try:
        with collector_off():
            assert not gc.isenabled()
        assert not gc.isenabled() and not collections
    finally:
        gc.enable()


def test_real_clock_times_a_sleep():
    import time

    samples = measure(lambda: time.sleep(0.01), warmup=0, steps=3)
    assert all(9e6 < ns < 1e9 for ns in samples.ns)


def test_no_steps_and_negative_counts():
    assert measure(lambda: None, warmup=0, steps=0) == Samples([], [])
    with pytest.raises(ValueError, match="negative"):
        measure(lambda: None, warmup=-1, steps=1)


def test_cpu_needs_no_synchronisation():
    assert synchronizer("cpu") is None
