"""The records of a report on several ranks. Times in ns, amounts in bytes, bandwidth in bytes/s; None is unknown."""

from __future__ import annotations

import msgspec

from perfkit.analysis.results import Finding, Report, Unjudged
from perfkit.hardware.collectives.results import CollectiveSweep


class StepInterval(msgspec.Struct, frozen=True):
    """A median or mean over steps, ns, with its 95 % interval (bootstrap; the range below five steps)."""

    value: float
    low: float
    high: float


class RankClock(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's clock against that of the first: `offset_ns` at the start, `drift` in ns a ns, and how far the ends of
    collectives are then apart (`residual_ns`, the median). `collectives` is their number; 0: not aligned."""

    rank: int
    collectives: int
    offset_ns: float | None = None
    drift: float = 0.0
    residual_ns: float | None = None


class RankStep(msgspec.Struct, frozen=True, kw_only=True):
    """The step of one rank, the mean over its steps: unions of intervals.

    `compute_ns` + `waiting_ns` + `exposed_ns` + `copy_ns` + `idle_ns` is the step: computation, waiting for other
    ranks and transfer that no computation covers, copies and fills next to neither, nothing. `waiting_ns` +
    `exposed_ns` + `overlapped_ns` is all of its communication, and `transfer_ns` all of it but the waiting. `overlap`
    is the share of communication that computation covers; `overlap_hta` is HolisticTraceAnalysis' figure of it, with
    its rounding.
    """

    rank: int
    device: str
    step_ns: float
    compute_ns: float
    waiting_ns: float
    exposed_ns: float
    copy_ns: float
    idle_ns: float
    overlapped_ns: float
    transfer_ns: float
    overlap: float | None
    overlap_hta: float | None
    idle: dict[str, float]
    late_ns: StepInterval
    late_steps: int
    steps: int


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one operation with one message in one group. Counts and times are of a step and one rank.

    `latency_ns` is the median of the calls' own times, `waiting_ns` what all ranks together wait in these calls,
    `skew_ns` the median time from the first rank's arrival to the last one's. Bandwidths are of the median call.
    """

    operation: str
    group: str
    ranks: int
    message_bytes: float | None
    dtype: str
    algorithm: str
    count: float
    latency_ns: float
    waiting_ns: float
    skew_ns: float
    algorithm_bandwidth: float | None
    bus_bandwidth: float | None
    roof: float | None = None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a late rank that takes longer than on others: `kind` is host, kernels, work, or copies; `ns` a step."""

    kind: str
    ns: float
    text: str


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that others wait for: how late it is, in how many steps, and the causes.

    In the steps in which it is late, `late_ns` is the median of how late it is, `mean_ns` the mean, and `exposed_ns`
    the mean of the part that lengthens the step (no computation of the others covers it, or it takes longer because
    they wait): fixing it saves no more.
    """

    rank: int
    late_ns: StepInterval
    mean_ns: float
    exposed_ns: StepInterval
    late_steps: int
    steps: int
    causes: list[Cause]


EQUAL_RANKS = "equal ranks"  # a what-if's name


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The least time of a step if something were ideal; a bound, by `how`."""

    name: str
    step_ns: float
    saves_ns: float
    how: str


class Imbalance(msgspec.Struct, frozen=True, kw_only=True):
    """Computation of a pass, or of a layer, a step: of the rank with the most and of the one with the least."""

    what: str
    most_rank: int
    most_ns: float
    least_rank: int
    least_ns: float


class RanksFinding(Finding, frozen=True, kw_only=True):
    """Something worth doing about several ranks, and the ranks that it is about (none: all of them).

    `saving_ns` is the most that fixing it saves a step; `saving_low_ns` and `saving_high_ns` are its 95 % interval
    where it was measured step by step.
    """

    ranks: list[int] = []
    saving_low_ns: float | None = None
    saving_high_ns: float | None = None


class RanksReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of the traces of several ranks. `step_ns` is the mean step, each as long as on its
    slowest rank, `problems` are sentences about unknown facts, `roofs` the sweeps of collectives measured on
    the machine of the traces. `timed_step_ns` of a captured job is the median step without the profiler, of the rank on
    which it is longest, and `detail` the report of one of its ranks by itself."""

    title: str
    world_size: int
    backend: str
    paths: dict[int, str]
    steps: int
    step_ns: StepInterval
    headline: list[str]
    parts: list[RankStep]
    collectives: list[Collective]
    stragglers: list[Straggler]
    what_ifs: list[WhatIf]
    imbalance: list[Imbalance]
    clocks: list[RankClock]
    problems: list[str]
    roofs: list[CollectiveSweep] = []
    findings: list[RanksFinding] = []
    unjudged: list[Unjudged] = []
    timed_step_ns: float | None = None
    detail: Report | None = None
    detail_rank: int | None = None
    detail_why: str = ""
    schema: int = 1
