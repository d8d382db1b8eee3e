"""Result of a benchmark: one record, from which terminal, HTML and JSON are rendered. Base units throughout."""

from __future__ import annotations

import msgspec

from perfkit.statistics import Estimate

OK, WRONG, FAILED, UNAVAILABLE = "ok", "wrong", "failed", "unavailable"
UNCHECKED = "unchecked"  # of results that have no reference, such as random numbers
WARM, COLD = "warm", "cold"


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one call in ns: median with its 95 % interval, and every sample (each the mean of `calls` calls).

    `efficiency` is roof time over median; None where the ceilings are unknown.
    """

    ns: Estimate
    samples: list[float]
    calls: int = 1
    bandwidth: float | None = None  # minimal bytes over the median
    flop_rate: float | None = None
    efficiency: float | None = None


class Error(msgspec.Struct, frozen=True):
    """The largest error of one output and what is allowed (`perfkit.kernels.checking`); None: not a finite number."""

    output: str
    error: float | None
    allowed: float


class BenchRow(msgspec.Struct, kw_only=True):
    """One way at one point. Only a way that is `ok` or `unchecked` has timings; `speedup` is PyTorch's time over its
    own, `of_trace` that of the trace, of an operator recorded on this device."""

    way: str
    text: str
    parameters: dict[str, int] = {}
    status: str = OK
    reason: str = ""
    errors: list[Error] = []
    warm: Timing | None = None
    cold: Timing | None = None
    speedup: Estimate | None = None
    of_trace: Estimate | None = None

    @property
    def label(self) -> str:
        """The way and its block sizes."""
        return " ".join([self.way, *(f"{k}={v}" for k, v in self.parameters.items())])

    def timing(self, cache: str) -> Timing | None:
        """The timing with `WARM` or `COLD` caches."""
        return self.warm if cache == WARM else self.cold


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """The least time that the machine allows: `ns`, what bounds it, and the ceiling in words."""

    ns: float
    bound: str
    ceiling: str


class BenchPoint(msgspec.Struct, kw_only=True):
    """One set of sizes and one precision: the work, the roofs, and a row for each way."""

    sizes: dict[str, int]
    dtype: str
    bytes: float | None
    flop: dict[str, float]
    roofs: dict[str, Roof] = {}  # by cache state
    rows: list[BenchRow] = []

    @property
    def title(self) -> str:
        """Sizes and precision."""
        return f"{', '.join(f'{k}={v}' for k, v in self.sizes.items())} {self.dtype}".strip()


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """time ∝ size^exponent, fitted over `points` sizes of `variable`: [low, high] is the 95 % interval of the fit."""

    way: str
    dtype: str
    variable: str
    exponent: float
    low: float | None
    high: float | None
    points: int


class RecordedArgument(msgspec.Struct, frozen=True):
    """An argument of a recorded call in words, and the distribution of what it was filled with."""

    name: str
    text: str
    filled: str


class RecordedCalls(msgspec.Struct, kw_only=True):
    """Calls in a trace that were run again: the time of one in ns there, the arguments, and what was not recorded.

    `comparable`: recorded on the very device of this benchmark. `kernels` are names, the longest first; `others` is the
    number of further kinds of calls that the choice left out. `zeros` and `masked` are times on
    this device with other values: zeros, and for a softmax over scores of T × T those of causal attention.
    """

    trace: str
    operator: str
    device: str
    comparable: bool
    ns: Estimate | None
    kernels: list[str]
    module: str
    pass_name: str
    others: int
    arguments: list[RecordedArgument]
    stated: list[str]
    zeros: Estimate | None = None
    masked: Estimate | None = None


class Bench(msgspec.Struct, kw_only=True):
    """A whole benchmark of one operation on one device."""

    operation: str
    formula: str
    device: str
    device_name: str
    threads: int
    seed: int
    points: list[BenchPoint] = []
    sweep: str = ""  # the size that the points differ in
    scaling: list[Scaling] = []
    notes: list[str] = []
    environment: dict[str, str] = {}
    recorded: RecordedCalls | None = None  # of an operator of a trace

    @property
    def wrong(self) -> list[tuple[BenchPoint, BenchRow]]:
        """Ways that were checked and are wrong, or failed."""
        return [(p, r) for p in self.points for r in p.rows if r.status in (WRONG, FAILED)]
