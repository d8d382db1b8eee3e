"""A pytest fixture: `perfkit_benchmark(function)` times a function and compares it with a saved baseline.

    def test_speed(perfkit_benchmark):
        perfkit_benchmark(lambda: encode(TEXT), fail_on="step>+10%")

    pytest --perfkit-save    saves what is measured as the newest baseline of each test
    pytest                   measures, and fails a test whose regression is proven
    pytest --perfkit-brief FILE    also adds a brief answer a benchmark to FILE, a line of JSON each (docs/agents.md)

The call is a `step` in the sense of `perfkit compare`; records are baselines (`perfkit baseline list`). Importing this
file imports nothing of perfkit: pytest loads it whether a test uses the fixture or not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perfkit.compare.record import Measurement
    from perfkit.compare.results import Condition
    from perfkit.compare.sides import Side

FAIL_ON = "step>+10%"
ROUNDS = 10  # turns, spread over the time; the unit that is compared
_WARMUP_SECONDS = 0.2


def pytest_addoption(parser: Any) -> None:
    """pytest's hook: the plugin's options."""
    group = parser.getgroup("perfkit", "benchmarks by perfkit")
    group.addoption("--perfkit-save", action="store_true", help="Save what perfkit_benchmark measures as baselines.")
    group.addoption(
        "--perfkit-on-cannot-tell", choices=("pass", "fail"), default="pass",
        help="What becomes of a test whose condition noise leaves undecided (pass, with a warning).",
    )  # fmt: skip
    group.addoption(
        "--perfkit-brief",
        metavar="FILE",
        default="",
        help="Add the comparison of each benchmark to FILE as brief JSON.",
    )


@dataclass
class BenchmarkResult:
    """Result of one benchmark: ns of each call, by turn, and the conditions with their outcomes."""

    name: str
    turns_ns: list[list[float]]
    conditions: list[Condition] = field(default_factory=list)

    @property
    def median_ns(self) -> float:
        """The median call in ns."""
        import statistics

        return statistics.median(ns for turn in self.turns_ns for ns in turn)


@pytest.fixture
def perfkit_benchmark(request: pytest.FixtureRequest) -> Callable[..., BenchmarkResult]:
    """`perfkit_benchmark(function, name=…, fail_on="step>+10%", seconds=1.0)`: measure, and compare with the baseline.

    `name` is the baseline's; the test's own when left out. Fails the test on a proven regression.
    """

    def benchmark(
        function: Callable[[], object], *, name: str = "", fail_on: str = FAIL_ON, seconds: float = 1.0
    ) -> BenchmarkResult:
        result = BenchmarkResult(name or _safe(request.node.nodeid), _measure(function, seconds))
        if request.config.getoption("--perfkit-save"):
            _save(result)
        else:
            option = request.config.getoption
            _check(result, fail_on, option("--perfkit-on-cannot-tell"), option("--perfkit-brief"))
        return result

    return benchmark


def _safe(text: str) -> str:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)
    return plain[-80:].strip("-._") or "benchmark"


def _measure(function: Callable[[], object], seconds: float) -> list[list[float]]:
    """Turns of calls, each after one that is not counted; ns."""
    import statistics
    import time

    from perfkit import timing

    started, first = time.perf_counter(), list[float]()
    while len(first) < 5 or time.perf_counter() - started < _WARMUP_SECONDS:
        first += timing.measure(function, 0, 1).ns
    calls = max(1, round(seconds * 1e9 / ROUNDS / max(statistics.median(first), 1.0)))
    return [timing.measure(function, 1, min(calls, 10_000)).ns for _ in range(ROUNDS)]


def _save(result: BenchmarkResult) -> None:
    import tempfile
    from pathlib import Path

    from perfkit.compare import baselines
    from perfkit.compare.record import write_measurement
    from perfkit.hardware.identity import fingerprint

    with tempfile.TemporaryDirectory() as scratch:
        write_measurement(Path(scratch), _measurement(result))
        baselines.save(result.name, Path(scratch), {"benchmark": {"step": result.median_ns}}, fingerprint())


def _measurement(result: BenchmarkResult) -> Measurement:
    import time

    import perfkit
    from perfkit.compare.record import MeasuredSide, Measurement, RecordedLaunch, Turn

    turns = [Turn(0, number, samples) for number, samples in enumerate(result.turns_ns)]
    launch = RecordedLaunch(turns=turns, warmup_ns=[[]], steady_from=[0], peak_memory_bytes=[None], tables=[""])
    return Measurement(
        perfkit=perfkit.__version__,
        created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        command=["pytest"],
        sides=[MeasuredSide(label="benchmark", run="", backend="benchmark")],
        launches=[launch],
    )


def _check(result: BenchmarkResult, fail_on: str, on_cannot_tell: str, brief: str) -> None:
    """Fail the test on a proven regression, after adding the comparison to the file `brief` ("" for none).

    A baseline that is missing, or of another machine, is said and skipped.
    """
    from perfkit.compare import baselines, gate, sides, sources
    from perfkit.compare.metrics import VerdictRule
    from perfkit.hardware.identity import fingerprint

    limits = gate.parse([fail_on])
    saved = baselines.latest(result.name)
    if saved is None:
        warnings.warn(f"no baseline {result.name}: pytest --perfkit-save makes one", stacklevel=4)
        return
    if saved.record.machine != fingerprint():
        warnings.warn(f"the baseline {result.name} is of another machine: not compared", stacklevel=4)
        return
    before = sources.load(sources.target_of(saved.content))[0]
    now = sides.of_launches(_measurement(result), 0, None, [], "this test")
    result.conditions = gate.check(before, now, limits, VerdictRule())
    before.label, now.label = "before", "now"
    if brief:
        _add([before, now], result, brief)
    said = "; ".join(f"{c.text}: {c.outcome}, {c.why}" for c in result.conditions)
    outcomes = {c.outcome for c in result.conditions}
    if gate.REGRESSED in outcomes or (gate.UNKNOWN in outcomes and on_cannot_tell == "fail"):
        pytest.fail(f"{result.name}: {said}", pytrace=False)
    if gate.UNKNOWN in outcomes:
        warnings.warn(f"{result.name}: {said}", stacklevel=4)


def _add(sides: list[Side], result: BenchmarkResult, file: str) -> None:
    """Add the brief answer about a comparison to a file."""
    from perfkit.compare import judge
    from perfkit.render import brief
    from perfkit.render.pages import compare

    found = judge.compare(sides, title=result.name)
    found.conditions = result.conditions
    with open(file, "a") as added:
        added.write(brief.render(compare.output(found)))
