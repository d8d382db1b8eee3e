"""The time of one call, with warm and with cold caches, several ways in turns.

CPU: the clock around calls. Warm: the call before has left its data in the caches, as far as they hold it. Cold: a
buffer of twice the last cache is read through before each call (read, not written: dirty lines would be written back
during the call).

GPU: CUDA events around one call, on the stream. A kernel of some microseconds is shorter than its launch from Python;
so the stream first gets something to do (warm: a wait; cold: overwriting a buffer larger than L2), and the launch is
in the queue before its turn comes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfkit.bench.results import COLD, WARM
from perfkit.timing import collector_off

if TYPE_CHECKING:
    import torch

Call = Callable[[], Any]

LEAST_NS = 100_000.0  # a warm sample lasts at least so long: shorter calls are repeated within it
MOST_CALLS = 1000
LEAST_SAMPLES = 5
MOST_SAMPLES = 200
A_TURN = 3  # samples of one way before the next has its turn


class CallTimer(ABC):
    """Times calls on one device."""

    @abstractmethod
    def warm(self, call: Call, calls: int) -> float:
        """Mean ns of `calls` calls, with caches as the call before left them."""

    @abstractmethod
    def cold(self, call: Call) -> float:
        """ns of one call, with its data in none of the caches."""


class CpuClock(CallTimer):
    """Wall time; `cache_bytes` is the size of the last cache."""

    def __init__(self, cache_bytes: float, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._bytes = max(int(2 * cache_bytes), 1 << 24)

    @cached_property
    def _buffer(self) -> torch.Tensor:
        import torch

        return torch.ones(self._bytes // 4)

    def warm(self, call: Call, calls: int) -> float:
        """ns a call, over `calls` in a row after one that warms up."""
        call()
        start = self._clock()
        for _ in range(calls):
            call()
        return (self._clock() - start) / calls

    def cold(self, call: Call) -> float:
        """ns of a call after the caches were filled with something else."""
        self._buffer.sum()
        start = self._clock()
        call()
        return float(self._clock() - start)


class CudaClock(CallTimer):
    """GPU time between events on the current stream of `device`."""

    WAIT_CYCLES = 1_000_000  # about half a millisecond: longer than Python takes to launch

    def __init__(self, device: str, cache_bytes: float) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = device
        self._buffer = torch.empty(int(max(2 * cache_bytes, 256 << 20)), dtype=torch.uint8, device=device)

    def warm(self, call: Call, calls: int) -> float:
        """ns a call between two events; the GPU waits until all are launched."""
        call()
        return self._between(lambda: self._cuda._sleep(self.WAIT_CYCLES), call, calls)

    def cold(self, call: Call) -> float:
        """ns of a call after L2 was filled with something else."""
        return self._between(self._buffer.zero_, call, 1)

    def _between(self, before: Call, call: Call, calls: int) -> float:
        with self._cuda.device(self._device):
            start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
            before()
            start.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e6 / calls


def clock_for(device: str, cache_bytes: float) -> CallTimer:
    """The clock of "cpu" or "cuda:N"."""
    return CudaClock(device, cache_bytes) if device.startswith("cuda") else CpuClock(cache_bytes)


def repetitions(clock: CallTimer, call: Call) -> int:
    """Return the number of calls in one warm sample, so that it lasts long enough for the clock."""
    once = min(clock.warm(call, 1) for _ in range(2))
    return max(1, min(MOST_CALLS, int(LEAST_NS / max(once, 1.0))))


def in_turns(
    clock: CallTimer,
    calls: Sequence[Call],
    repeats: Sequence[int],
    cache: str,
    seconds: float,
    resets: Sequence[Call | None] = (),
) -> list[list[float]]:
    """Samples of each call in ns, taken in turns, for about `seconds` a call; at least `LEAST_SAMPLES` of each.

    `repeats` are the calls of a warm sample; `resets` run before each sample of theirs. Turns spread what else happens
    on the machine over all of them.
    """
    assert cache in (WARM, COLD)
    samples: list[list[float]] = [[] for _ in calls]
    spent = [0.0] * len(calls)
    with collector_off():
        while True:
            due = [i for i, taken in enumerate(samples) if _due(len(taken), spent[i], seconds)]
            if not due:
                return samples
            for i in due:
                start = time.perf_counter()
                for _ in range(A_TURN):
                    if resets and (reset := resets[i]):
                        reset()
                    one = clock.warm(calls[i], repeats[i]) if cache == WARM else clock.cold(calls[i])
                    samples[i].append(one)
                spent[i] += time.perf_counter() - start


def _due(taken: int, spent: float, seconds: float) -> bool:
    return taken < LEAST_SAMPLES or (spent < seconds and taken < MOST_SAMPLES)
