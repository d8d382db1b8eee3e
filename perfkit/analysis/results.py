"""The results of an analysis: one record in the middle, small renderers around it.

Everything a renderer shows is here, in base units (ns, bytes, FLOP); nothing is computed later but a scale or a colour.
None means unknown. The JSON output is this record as it is (`schema` counts its versions).
"""

from __future__ import annotations

from typing import Any

import msgspec

from perfkit.analysis.fusion_results import Fusion
from perfkit.analysis.line_results import LineTime, SourceLine
from perfkit.analysis.loading_results import Loading
from perfkit.analysis.roofline_results import RoofLine, RooflinePoint
from perfkit.analysis.step_results import Accounting, CounterUse, Exposed, RangeTime, ServingPhase, Transfer, Wait
from perfkit.instructions.results import HotKernel
from perfkit.memory.results import DeviceMemory
from perfkit.run_folder import Correctness, Power, RankRun, Settings, Symbol, TraceCheck, WorkloadFacts, World
from perfkit.statistics import SMALL

SCHEMA_VERSION = 1


class Interval(msgspec.Struct, frozen=True):
    """A value with its 95 % interval, and from how many samples: of fewer than `SMALL` it is only their range."""

    value: float
    low: float
    high: float
    samples: int

    @property
    def is_range(self) -> bool:
        """Return whether there are too few samples for an interval."""
        return self.samples < SMALL


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a kernel takes longer than its roof, or cannot be judged: a named rule with its evidence.

    `saving_ns` is the most that fixing it saves a step; None without a bound.
    """

    name: str  # the rule, such as "uncoalesced"
    label: str  # in a few words, with its figure
    text: str  # a sentence, with the evidence
    remedy: str = ""
    saving_ns: float | None = None
    lines: list[SourceLine] = []  # of the kernel's source, or its instructions, the largest share first


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something worth doing: the fault, its place, its time, the most that fixing it saves, and the remedy.

    Savings of different findings may be about the same time: they are never added up.
    """

    name: str  # the rule that found it, such as "uncoalesced" or "gpu-idle"
    title: str
    evidence: str
    remedy: str
    time_ns: float  # a step, of what it is about
    saving_ns: float  # a step, at most
    share: float  # saving over the time of the step (the kernel time without a step), 0 to 1
    kernels: list[str] = []  # short names, where it is about kernels
    count: float = 0.0  # rows a step that it is about
    bounded: bool = True  # False: `saving_ns` is what is known to be spent, 0 for nothing in the profiled steps
    lines: list[SourceLine] = []  # the largest share first


class Unjudged(msgspec.Struct, frozen=True):
    """A rule that cannot judge the profile, and why, as the end of a sentence."""

    rule: str
    why: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A result of NVIDIA's own rules for a kernel, stored in the report; estimates overlap and are never added up."""

    kernel: str
    title: str
    text: str
    speedup: float  # NVIDIA's estimate, 0 to 1
    scope: str  # "global": of the whole kernel; "local": of a part of it


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that the profile lacks, and the profiler's option that supplies it."""

    what: str
    option: str
    kernels: int
    of: int
    for_roof: bool


class Excluded(msgspec.Struct, frozen=True):
    """Rows that are not judged by their roof, a step, and why (`perfkit.analysis.roofline.excluded`)."""

    why: str
    count: float
    time_ns: float
    share: float  # of the kernel time


class Group(msgspec.Struct, kw_only=True):
    """Rows of the kernel table taken together: a pass, a family, a kernel name, a module, or one row's kind of call.

    Sums are over the rows that know the quantity; `flop_known_ns` and `bytes_known_ns` say how much of `time_ns` that
    is, and a sum of zeros is None unless all rows know theirs. All amounts are per step.
    """

    key: str
    count: float
    time_ns: float
    share: float  # of the kernel time of the step, 0 to 1
    flop: float | None = None
    bytes: float | None = None  # counters where there are any, else minimal bytes
    flop_known_ns: float = 0.0
    bytes_known_ns: float = 0.0
    intensity: float | None = None  # FLOP/byte
    flop_rate: float | None = None  # FLOP/s over the time of rows that know
    bandwidth: float | None = None  # bytes/s over the time of rows that know
    roof_ns: float | None = None  # Σ roof time of rows that have one
    judged_ns: float = 0.0  # Σ time of the same rows
    efficiency: float | None = None  # roof_ns / judged_ns, a ratio of sums
    headroom_ns: float | None = None  # judged_ns − roof_ns, over rows not above their roof
    bound: str = ""  # the resource that sets most of roof_ns, such as "memory" or "matrix_fp32"
    ceiling: str = ""  # the ceiling used, in words
    datasheet: bool = False  # whether a part of roof_ns is by a datasheet, which nothing reaches in practice
    # True if kernels faster than their roof allows take a tenth of its time or lift its efficiency by 5 points: the
    # measurement or the model of their work is broken, and its efficiency is wrong.
    above_roof: bool = False
    above_ns: float = 0.0  # Σ time of kernels above their roof
    above_kernels: list[str] = []  # their short names, the most such time first
    helped_ns: float = 0.0  # Σ time of kernels of whose bytes a cache held a part: they count as at their roof
    fused_ns: float = 0.0  # Σ time that is a part of kernels that serve other places too
    withheld_ns: float = 0.0  # Σ time of rows that are not judged on purpose
    withheld: str = ""  # and why most of them are not: "too small", "work not counted" …
    reasons: list[Reason] = []  # the most telling first
    family: str = ""
    passes: tuple[str, ...] = ()
    shapes: str = ""
    example: str = ""  # name as captured


class ModuleNode(msgspec.Struct, kw_only=True):
    """A node of the module tree: its own rows and its children's together."""

    name: str
    path: str
    total: Group
    children: list[ModuleNode] = []


class Coverage(msgspec.Struct, kw_only=True):
    """Shares of kernel time, 0 to 1: placed in a pass, in a layer or module, with FLOP, bytes and counters."""

    pass_: float
    module: float
    flop: float
    bytes: float
    counters: float
    text: str  # the line that is printed
    not_judged: str = ""  # a sentence on kernels that have no roof, and why
    uncosted: list[str] = []  # operators the model does not know, largest first


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of generating tokens, of one run of the model in it: the first token's pass, or that of a later one."""

    name: str  # prefill, decode
    runs: int  # a step
    time: Interval  # ns, the median
    slow_ns: float  # the 99th percentile
    tokens_per_second: float  # of all sequences: read in prefill, made in decode
    user_tokens_per_second: float | None  # of one sequence, in decode
    flop: float
    weight_bytes: float
    cache_bytes: float
    roof_ns: float | None  # weights and cache once, or the FLOP where they take longer
    bound: str  # memory or matrix
    ceiling: str  # the ceiling that sets the roof, in words
    efficiency: float | None  # roof / time
    headroom_ns: float | None


class BackendReport(msgspec.Struct, kw_only=True):
    """One backend: verdict, speed, accounting, and the table in aggregates."""

    name: str
    status: str
    reason: str = ""
    timed: bool = True
    correctness: Correctness | None = None
    step: Interval | None = None  # ns
    speedup: Interval | None = None  # against eager; None when wrong, untimed, or without eager
    samples_per_second: float | None = None
    prepare_ns: float | None = None
    peak_memory_bytes: float | None = None
    memory_how: str = ""
    power: Power | None = None  # of the GPU during timed steps
    energy_j: float | None = None  # a step: its time at the mean draw
    held: str = ""  # what held the GPU's clock down, in a sentence
    mfu: float | None = None  # hand-worked model FLOP over step time and the matrix ceiling of the precision
    mfu_ceiling: str = ""
    step_flop: float | None = None  # model FLOP a step
    counted_flop: float | None = None  # FLOP of the table a step
    counted_bytes: float | None = None
    efficiency: float | None = None
    headroom_ns: float | None = None
    datasheet: bool = False  # of the whole step, as `Group` says
    above_roof: bool = False
    above_ns: float = 0.0
    above_kernels: list[str] = []
    accounting: Accounting | None = None
    coverage: Coverage | None = None
    passes: list[Group] = []
    families: list[Group] = []
    pass_families: dict[str, dict[str, float]] = {}  # pass → family → ns a step, for the stacked chart
    kernels: list[Group] = []  # by kernel name and shapes, largest time first
    headroom: list[Group] = []  # the same groups, largest headroom first
    operators: list[Group] = []  # by the logical operator that kernels serve, largest time first
    tree: ModuleNode | None = None
    ranges: list[RangeTime] = []  # with kernels, most kernel time first
    transfers: list[Transfer] = []
    exposed: list[Exposed] = []  # copies and collectives
    waits: list[Wait] = []
    lines: list[LineTime] = []  # source lines, the most time on the host first
    loading: list[Loading] = []  # its DataLoaders, the one that it waits for most first
    kind: str = "run"  # where its table is from: run, ncu, nsys, trace, or table
    per: str = "step"  # what amounts are of: a step, a capture, or a profile (kernels measured one by one)
    kernel_ns: float = 0.0  # Σ time of its kernels
    device: str = ""  # cpu or cuda: where its kernels ran
    findings: list[Finding] = []  # what to do next, the largest saving first
    unjudged: list[Unjudged] = []  # rules that the profile does not allow to judge
    fusion: Fusion | None = None  # of a backend that runs operator by operator
    # By pass of a backend with generated kernels: kernels, ns, bytes and efficiency of the remaining fusible work.
    compiled: dict[str, tuple[float, float, float | None, float | None]] | None = None
    counters: list[CounterUse] = []  # sampled over the capture, by step, pass and family
    hot: list[HotKernel] = []  # of kernels with counted instructions, the most time first
    advice: list[Advice] = []  # NVIDIA's, by kernel
    missing: list[Missing] = []
    withheld: list[Excluded] = []
    points: list[RooflinePoint] = []
    symbols: list[Symbol] = []
    losses: list[float] = []
    samples_ns: list[float] = []
    phases: list[PhaseReport] = []  # of a step that generates tokens
    serving: list[ServingPhase] = []  # of a profile of a serving engine
    memory: list[DeviceMemory] = []  # by device, where allocations were recorded
    ranks: list[RankRun] = []  # of several ranks, whose slowest gives `step`; kernels and what follows are rank 0's
    generated: str = ""
    annotated: str = ""  # the listing of `generated` with costs: a page in the run folder, where one was written
    trace: str = ""
    unusable: str = ""  # why no number was made from its profile, in sentences
    trace_checks: list[TraceCheck] = []  # what the checks of its profile found; none of a profile that has no checks
    warnings: list[str] = []


class Report(msgspec.Struct, kw_only=True):
    """The whole report of a run, or of one profile (then `settings` and `workload` are None)."""

    schema: int = SCHEMA_VERSION
    perfkit: str
    title: str
    source: str  # path of what was read
    created: str = ""
    command: list[str] = []
    verdict: list[str] = []  # sentences, the most important first
    settings: Settings | None = None
    workload: WorkloadFacts | None = None
    world: World | None = None  # the ranks of a run that has several
    backends: list[BackendReport] = []
    roofs: list[RoofLine] = []
    ceilings_are: str = "measured on this device"  # whose the roofs are, in words
    ceilings: dict[str, Any] | None = None  # perfkit.hardware.ceilings.Ceilings as plain data
    environment: dict[str, Any] = {}
    warnings: list[str] = []

    @property
    def kind(self) -> str:
        """run, or what kind of profile this is the report of: ncu, nsys, trace, table."""
        return self.backends[0].kind if self.settings is None and self.backends else "run"
