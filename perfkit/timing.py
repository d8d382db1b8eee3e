"""The measuring loop: warm-up, synchronise, read the clock, and nothing else between.

What a step costs at first (compilation, allocation, cold caches) is recorded apart from what it costs when it runs
steadily. The garbage collector is off while steps are timed, because its pauses belong to Python's state and not to the
step; it is restored whatever happens.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

Clock = Callable[[], int]  # nanoseconds from any fixed point


class Samples(msgspec.Struct, frozen=True):
    """Wall time of each timed step and, apart, of each warm-up step, in ns and in order."""

    ns: list[float]
    warmup_ns: list[float]


def measure(
    step: Callable[[], object],
    warmup: int,
    steps: int,
    clock: Clock = time.perf_counter_ns,
    synchronize: Callable[[], object] | None = None,
    before: Callable[[int], object] | None = None,
    after: Callable[[int], object] | None = None,
) -> Samples:
    """Run `step` `warmup` + `steps` times and time each run.

    `synchronize` waits for the device (`synchronizer(device)` makes it) and is called before the clock is read, so that
    work still queued counts. `before(i)` and `after(i)` are called outside the timed span around each step, i counting
    from 0 with the warm-up included: making its data, or keeping a loss. Raises `ValueError` for a negative count;
    errors of `step` escape.
    """
    if warmup < 0 or steps < 0:
        raise ValueError("the number of steps cannot be negative")
    times: list[float] = []
    with collector_off():
        for index in range(warmup + steps):
            if before is not None:
                before(index)
            times.append(_time_one(step, clock, synchronize))
            if after is not None:
                after(index)
    return Samples(times[warmup:], times[:warmup])


def synchronizer(device: str) -> Callable[[], None] | None:
    """Return the function that waits for all work on `device` ("cpu", "cuda", "cuda:1"); None for the CPU, whose calls
    return when done."""
    if device.split(":")[0] == "cpu":
        return None
    import torch

    return lambda: torch.cuda.synchronize(device)


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect garbage once, then keep the collector off until the block ends.

    A collector found off stays off, and nothing is collected: a collection walks through all objects and leaves the
    caches to them, so a block inside this one would time its first step cold.
    """
    was_on = gc.isenabled()
    if was_on:
        gc.collect()
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _time_one(step: Callable[[], object], clock: Clock, synchronize: Callable[[], object] | None) -> float:
    if synchronize is not None:
        synchronize()
    start = clock()
    step()
    if synchronize is not None:
        synchronize()
    return float(clock() - start)
