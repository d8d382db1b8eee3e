"""Result of a comparison: one record in the middle, as in `results`. Times in ns a step, the first side the base."""

from __future__ import annotations

import msgspec

from perfkit.analysis.difference import PartChange
from perfkit.analysis.results import Interval
from perfkit.instructions.results import CodeChange
from perfkit.statistics.verdicts import Judgement

SCHEMA_VERSION = 1


class SideResult(msgspec.Struct, frozen=True, kw_only=True):
    """One side as it was measured. `status` and `reason` as of a run's backend; `checked` whether its results were."""

    label: str
    source: str
    backend: str
    status: str
    reason: str = ""
    unusable: str = ""  # why no number was made from its profile
    checked: bool = False
    step: Interval | None = None  # the timed step, over units (launches or turns)
    units: int = 0
    unit: str = ""
    kernel_ns: float | None = None
    launches: float | None = None  # kernels a step
    flop: float | None = None
    flop_known: float = 1.0  # share of the kernel time whose kernels know theirs
    bytes: float | None = None
    bytes_known: float = 1.0
    efficiency: float | None = None
    datasheet: bool = False  # whether a datasheet is a part of its roof
    peak_memory_bytes: float | None = None
    profiled_steps: int = 0
    per: str = "step"  # what amounts are of, as in the report
    placed: float | None = None  # share of the kernel time that has a pass
    evidence: dict[str, float] = {}  # how it was placed → share of the kernel time
    flags: list[str] = []  # drift, outliers, warm-up: sentences


class WaterfallLine(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the difference. Lines of level 0 sum to the whole; those of level 1 below one sum to it."""

    name: str
    level: int
    kind: str  # pass, family, gaps, cause, rest
    first_ns: float
    second_ns: float
    difference_ns: float


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """Sources of the difference of the steps; `basis` says what is summed: timed, profiled or kernels."""

    basis: str
    first_ns: float
    second_ns: float
    difference_ns: float
    lines: list[WaterfallLine]


class SideTime(msgspec.Struct, frozen=True):
    """Time of one side at one place of the tree, a step; None where unknown.

    `flop_known` and `bytes_known` are the shares of its time whose kernels know theirs; the others add nothing.
    """

    time_ns: float
    launches: float
    flop: float | None
    flop_known: float
    bytes: float | None
    bytes_known: float
    efficiency: float | None
    fused: float  # share of the time that is a part of fused kernels


class TreeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A place of the logical tree: level 0 the step, 1 a pass, 2 a layer, 3 an operator; 2 an operator where a pass has
    no layers. A cell a side, None where it has nothing there."""

    name: str
    level: int
    cells: list[SideTime | None]


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """Which kernels serve one part of the model (its repeated layers together) in the first, which in the second."""

    pass_: str
    module: str
    operator: str
    first: list[str]
    second: list[str]
    first_ns: float
    second_ns: float


class JudgedMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of both sides (ns, bytes or a share), its judgement, and what it is of: step, pass, family, memory…"""

    metric: str
    unit: str
    first: float | None
    second: float | None
    judgement: Judgement


class PartWinner(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the model (its repeated layers together) as two sides serve it: each one's kernels, the longest first,
    their time judged, the label of the side that is shown to be faster ("" for none), and why."""

    pass_: str
    module: str
    operator: str
    kernels: list[list[str]]
    tested: JudgedMetric
    best: str
    why: str


class PhasePair(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of two serving engines: iterations, and requests, tokens and context of an iteration (means; None where
    unknown or absent), metrics with their verdicts, and what was served otherwise, as a sentence ("" for nothing)."""

    phase: str
    iterations: list[int]
    requests: list[float | None]
    tokens: list[float | None]
    context: list[float | None]
    tested: list[JudgedMetric]
    unlike: str = ""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Another side against the first."""

    first: str
    second: str
    step: JudgedMetric
    tested: list[JudgedMetric]  # passes and families, corrected together; then memory and efficiency
    waterfall: Waterfall | None
    exchanges: list[Exchange]
    served: list[PartWinner] = []  # of sides that differ in their executors
    phases: list[PhasePair] = []  # of serving engines
    operators: list[PartChange]
    kernels: list[PartChange]
    lines: list[PartChange] = []  # source lines, by the host's time of the profiled steps
    code: list[CodeChange] = []  # instructions, or source lines, inside kernels of both


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of `--fail-on` and its outcome: regressed, passed or cannot tell."""

    text: str
    outcome: str
    why: str


class Comparison(msgspec.Struct, kw_only=True):
    """The whole comparison; `how` says in a sentence how it was measured, `differs` what should have agreed."""

    schema: int = SCHEMA_VERSION
    perfkit: str
    title: str
    created: str = ""
    command: list[str] = []
    verdict: list[str] = []
    how: str = ""
    sides: list[SideResult]
    pairs: list[Pair]
    tree: list[TreeLine] = []
    differs: list[str] = []
    notes: list[str] = []
    conditions: list[Condition] = []
