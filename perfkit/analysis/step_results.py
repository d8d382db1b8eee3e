"""The results of a profile's steps besides its kernels: where no kernel ran, ranges, copies, waits, counters, serving.

Parts of `perfkit.analysis.results`, in base units; None means unknown.
"""

from __future__ import annotations

import msgspec

MUCH_OVERHEAD = 0.15  # of the step without a profiler
COPY, COLLECTIVE = "copy", "collective"  # kinds of `Exposed`
OWN_CODE_NS = 200_000.0  # of Python for each kernel: PyTorch takes tens of µs between two operators


class Gap(msgspec.Struct, frozen=True):
    """Time of the profiled step in which no kernel ran, by cause."""

    cause: str
    time_ns: float
    share: float  # of the profiled step
    text: str = ""


class Accounting(msgspec.Struct, kw_only=True):
    """The parts of the profiled step: kernels + gaps = the step; next to it the step without a profiler."""

    profiled_step_ns: float
    kernel_ns: float
    gaps: list[Gap]
    other_ns: float  # what no cause explains
    timed_step_ns: float | None  # median without a profiler; None too where it says nothing about the profiled step
    profiler_overhead: float | None  # profiled step / plain step − 1
    plain_step_ns: float | None = None  # median of the steps right before the profiled ones, else of the timed
    step_text: str = ""  # what the step is where it is not the host's mark

    def own_code(self, kernels: float) -> Gap | None:
        """Python that is more than PyTorch needs between `kernels` operators of a CPU step: code that calls none."""
        found = (g for g in self.gaps if g.cause == "Python" and g.time_ns > OWN_CODE_NS * kernels)
        return next(found, None)

    @property
    def is_slowed(self) -> bool:
        """Return whether the profiled step takes much longer than one without a profiler."""
        return self.profiler_overhead is not None and self.profiler_overhead > MUCH_OVERHEAD


class RangeTime(msgspec.Struct, frozen=True):
    """An annotation range by name, over the whole capture: how often it was open, and what it launched."""

    name: str
    count: int
    host_ns: float
    kernels: int
    kernel_ns: float
    share: float  # of the kernel time of the capture, 0 to 1; ranges inside each other share kernels


class Transfer(msgspec.Struct, frozen=True):
    """Copies of one direction and kind of memory, over the whole capture."""

    name: str
    count: int
    time_ns: float
    bytes: float | None
    bandwidth: float | None  # bytes/s over the time of the copies


class Exposed(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction and kind of memory, or all collectives, a step.

    `exposed_ns` is the time in which nothing else ran on their device; None without start times.
    """

    name: str
    kind: str  # COPY or COLLECTIVE
    count: float
    time_ns: float
    exposed_ns: float | None = None


class Wait(msgspec.Struct, frozen=True):
    """Waits of the host for the GPU in one CUDA call, over the whole capture."""

    name: str
    count: int
    time_ns: float


class CounterUse(msgspec.Struct, frozen=True, kw_only=True):
    """Counters sampled while the kernels of a step, pass or family ran, over the whole device; shares from 0 to 1.

    They are over `covered_ns` of `busy_ns`, over the whole capture; None: the capture lacks the counter.
    """

    of: str
    key: str
    busy_ns: float
    covered_ns: float
    dram_read: float | None = None
    dram_write: float | None = None
    dram: float | None = None
    l2: float | None = None
    tensor: float | None = None
    sm: float | None = None
    dram_bytes: float | None = None


class ServingPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The iterations of a serving engine in one phase: prefill, mixed, decode or idle."""

    name: str
    iterations: int
    prompts: int | None  # requests whose prompts are read, over all iterations; None where a name does not say
    requests: tuple[int, int]  # of an iteration, the least and the most
    prompt_tokens: int | None  # over all iterations; None where the engine does not say
    new_tokens: int | None
    context: float | None  # tokens of the cache that an iteration reads, over its requests: the mean
    median_ns: float  # of an iteration
    slow_ns: float  # the 99th percentile
    time_ns: float  # of all of them
    busy: float | None  # the share of that time in which the GPU works
    tokens_per_second: float | None
    weight_bytes: float | None = None  # read in an iteration, the mean; None where shapes do not show it
    cache_bytes: float | None = None  # of keys and values, likewise
    roof_ns: float | None = None  # the least time of an iteration: these bytes read once, or its products
    bound: str = ""  # what sets it
    token_ns: float | None = None  # between two tokens of a request, of those made in this phase: the median
    token_slow_ns: float | None = None  # the 99th percentile
    begins_ns: list[float] = []  # of each iteration, from the first one's begin; pauses without requests left out
    times_ns: list[float] = []  # of each iteration
    tokens: list[int | None] = []  # of each iteration
