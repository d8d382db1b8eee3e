"""A benchmark from beginning to end: for each set of sizes, check every way, time the right ones, judge by the roof."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from perfkit.bench import measure, results
from perfkit.bench.benchmark import PYTORCH, Benchmark, Outputs, Prepared, Way
from perfkit.bench.results import COLD, WARM, Bench, BenchPoint, BenchRow, Error, Roof, Timing
from perfkit.cost.model import Cost
from perfkit.errors import PerfkitError, RunFailed, Unavailable, UsageError, first_line
from perfkit.hardware.ceilings import Ceilings
from perfkit.kernels import mkl
from perfkit.kernels.checking import largest_error, to_fp64
from perfkit.statistics import exponent, median, ratio_of_medians

Progress = Callable[[str, str], None]
INPUT_DTYPES = {"tf32": "fp32"}
_CHANGING = 20  # calls in a row of what changes its arguments: numbers must not leave the range of their dtype


@dataclass(frozen=True)
class BenchOptions:
    """How to measure: on which `device`, seconds a way and cache state, which cache states, and the inputs' seed."""

    device: str
    seconds: float = 0.5
    caches: tuple[str, ...] = (WARM, COLD)
    seed: int = 0


def bench(
    benchmark: Benchmark,
    ways: Sequence[Way],
    sizes: Sequence[Mapping[str, int]],
    dtypes: Sequence[str],
    options: BenchOptions,
    ceilings: Ceilings | None = None,
    progress: Progress = lambda who, what: None,
) -> Bench:
    """Check and time `ways` of `benchmark` at all `sizes` in all `dtypes`.

    A way that cannot run, or is wrong, is a row that says so. Without `ceilings`, efficiencies are unknown.
    """
    mkl.choose_vector_functions()
    clock = measure.clock_for(options.device, last_cache(ceilings))
    found = Bench(
        operation=benchmark.name,
        formula=benchmark.formula,
        device=options.device,
        device_name=ceilings.device_name if ceilings else "",
        threads=torch.get_num_threads(),
        seed=options.seed,
    )
    with torch.no_grad():
        for dtype in dtypes:
            for some in sizes:
                point = BenchPoint(sizes=dict(some), dtype=dtype, bytes=None, flop={})
                found.points.append(point)
                with _precision(dtype):
                    _measure(benchmark, ways, point, options, clock, ceilings, progress)
                gc.collect()
    return found


def fit(found: Bench, changed: Sequence[str]) -> None:
    """Note what the sweep changed, and fit the exponent of each way's warm time (cold, where only that was taken)."""
    found.sweep = ",".join(changed)
    series: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for point in found.points:
        for row in point.rows:
            timing = row.warm or row.cold
            if timing:
                series.setdefault((row.label, point.dtype), []).append((point.sizes[changed[0]], timing.ns.value))
    for (way, dtype), pairs in series.items():
        if len({size for size, _ in pairs}) > 1:
            slope, low, high = exponent(*zip(*pairs, strict=True))
            found.scaling.append(
                results.Scaling(
                    way=way, dtype=dtype, variable=found.sweep, exponent=slope, low=low, high=high, points=len(pairs)
                )
            )


def last_cache(ceilings: Ceilings | None) -> float:
    """The size of the last cache in bytes; without ceilings more than any has."""
    return max(ceilings.caches.values(), default=0.0) if ceilings else 64e6


@contextlib.contextmanager
def _precision(dtype: str) -> Iterator[None]:
    """Matrix products of fp32 run in tf32 where the precision is called so, and in fp32 otherwise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def _sentence(benchmark: Benchmark, point: BenchPoint) -> Iterator[None]:
    """Return PyTorch's complaint about sizes that do not fit, in memory or together, as a sentence."""
    try:
        yield
    except PerfkitError:
        raise
    except (RuntimeError, ValueError, IndexError, MemoryError) as error:
        first = first_line(error)
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "memory" in first:
            hint = "Give smaller --sizes."
            raise RunFailed(f"{benchmark.name} at {point.title} does not fit into memory.", hint) from error
        raise UsageError(
            f"{benchmark.name} cannot be computed at {point.title}: {first}.", "Give other --sizes."
        ) from error


def _measure(
    benchmark: Benchmark, ways: Sequence[Way], point: BenchPoint, options: BenchOptions, clock: measure.CallTimer,
    ceilings: Ceilings | None, progress: Progress,
) -> None:  # fmt: skip
    progress(point.title, "making inputs")
    if point.dtype not in benchmark.tolerance:
        known = ", ".join(benchmark.tolerance)
        raise UsageError(f"{benchmark.name} is not computed in {point.dtype}.", f"Precisions: {known}.")
    kind = INPUT_DTYPES.get(point.dtype, point.dtype)
    with _sentence(benchmark, point):
        arguments = benchmark.arguments(kind, options.seed, point.sizes, options.device)
        cost = benchmark.cost(arguments)
        expected = benchmark.reference(*map(to_fp64, arguments))
    if cost:
        point.bytes, point.flop = cost.bytes, dict(cost.flop)
    found: list[tuple[BenchRow, Prepared | None]] = []
    for way in ways:
        progress(point.title, f"checking · {way.name}")
        allowed = benchmark.tolerance[point.dtype] * benchmark.growth(point.sizes) * way.tolerance_factor
        found += checked(way, arguments, kind, expected, allowed)
    del expected
    point.rows += [row for row, _ in found]
    _judge(point.rows)
    right = (results.OK, results.UNCHECKED)
    ready = [(row, prepared) for row, prepared in found if row.status in right and prepared]
    if ceilings and cost:
        point.roofs = {cache: roof(cost, cache, ceilings, benchmark.in_place) for cache in options.caches}
    for cache in options.caches:
        progress(point.title, f"timing, {cache} · {len(ready)} ways")
        with _sentence(benchmark, point):
            _time(ready, point, cache, options, clock)
    _compare(point)


def checked(
    way: Way, arguments: Sequence[Any], dtype: str, expected: Outputs, allowed: float
) -> Iterator[tuple[BenchRow, Prepared | None]]:
    """A row for each variant of `way`: right, wrong, failed or not available, with the prepared calls."""
    row = BenchRow(way=way.name, text=way.text)
    try:
        variants = way.prepare(arguments, dtype)
    except PerfkitError as error:
        row.status = results.UNAVAILABLE if isinstance(error, Unavailable) else results.FAILED
        row.reason = str(error)
        yield row, None
        return
    except Exception as error:  # a compiler's or PyTorch's own: one way must not end the benchmark of the others
        yield _failed(row, error), None
        return
    for prepared in variants:
        row = BenchRow(way=way.name, text=way.text, parameters=dict(prepared.parameters))
        try:
            row.errors = _errors(_poisoned(prepared, expected), expected, allowed)
        except Exception as error:
            yield _failed(row, error), None
            continue
        row.status = results.OK if row.errors else results.UNCHECKED
        yield row, prepared


def _judge(rows: Sequence[BenchRow]) -> None:
    """Mark wrong ways. One may be as far off as PyTorch's own operator, where that one is right."""
    beside = {
        e.output: e.error
        for row in rows
        if row.way == PYTORCH and not any(map(_is_wrong, row.errors))
        for e in row.errors
        if e.error is not None
    }
    for row in (row for row in rows if row.status == results.OK):
        row.errors = [Error(e.output, e.error, max(e.allowed, beside.get(e.output, 0.0))) for e in row.errors]
        if wrong := list(filter(_is_wrong, row.errors)):
            row.status = results.WRONG
            row.reason = "; ".join(f"{e.output}: error {_number(e.error)}, allowed {e.allowed:.0e}" for e in wrong)


def _is_wrong(error: Error) -> bool:
    return error.error is None or not error.error <= error.allowed


def _poisoned(prepared: Prepared, expected: Outputs) -> Outputs:
    """The results, after memory of their size was filled with NaN and freed: an allocator likes to give it again."""
    poison = [torch.full(t.shape, math.nan, device=t.device) for t in expected.values()]
    del poison
    return prepared.checked()


def _errors(got: Outputs, expected: Outputs, allowed: float) -> list[Error]:
    found = []
    for name, tensor in got.items():
        e = expected[name]
        same = tensor.reshape(e.shape) if tensor.numel() == e.numel() else tensor
        error = largest_error(same, e)
        found.append(Error(name, error if math.isfinite(error) else None, allowed))
    return found


def _failed(row: BenchRow, error: Exception) -> BenchRow:
    row.status = results.FAILED
    row.reason = str(error) if isinstance(error, PerfkitError) else f"{type(error).__name__}: {first_line(error)}"
    return row


def _number(error: float | None) -> str:
    return "not a number, or infinite" if error is None else f"{error:.1e}"


def _time(
    ready: Sequence[tuple[BenchRow, Prepared]],
    point: BenchPoint,
    cache: str,
    options: BenchOptions,
    clock: measure.CallTimer,
) -> None:
    calls = [prepared.call for _, prepared in ready]
    resets = [prepared.reset for _, prepared in ready]
    repeats = [measure.repetitions(clock, call) if cache == WARM else 1 for call in calls]
    repeats = [n if reset is None else min(n, _CHANGING) for n, reset in zip(repeats, resets, strict=True)]
    taken = measure.in_turns(clock, calls, repeats, cache, options.seconds, resets)
    limit = point.roofs.get(cache)
    for (row, _), samples, count in zip(ready, taken, repeats, strict=True):
        estimate = median(samples)
        timing = Timing(
            ns=estimate,
            samples=samples,
            calls=count,
            bandwidth=point.bytes / estimate.value * 1e9 if point.bytes else None,
            flop_rate=sum(point.flop.values()) / estimate.value * 1e9 if any(point.flop.values()) else None,
            efficiency=limit.ns / estimate.value if limit else None,
        )
        if cache == WARM:
            row.warm = timing
        else:
            row.cold = timing


def roof(cost: Cost, cache: str, ceilings: Ceilings, in_place: bool) -> Roof:
    """The least time for `cost`: memory (by working set, or main memory where caches are cold) or arithmetic.

    An arithmetic unit without a measured ceiling bounds nothing.
    """
    moved = cost.bytes
    held = moved / 2 if in_place else moved
    touched = math.inf if cache == COLD else held
    seconds, memory = ceilings.memory_time(cost.bytes_read, cost.bytes_written, touched, in_place and cache == WARM)
    candidates = [Roof(ns=seconds * 1e9, bound="memory", ceiling=memory.name)]
    for unit, amount in cost.flop.items():
        ceiling = ceilings.compute_for(unit)
        if ceiling:
            name = unit.replace("_", " ")
            candidates.append(Roof(ns=amount / ceiling.value * 1e9, bound=name, ceiling=f"{name}, {ceiling.name}"))
    return max(candidates, key=lambda r: r.ns)


def _compare(point: BenchPoint) -> None:
    """Each way's speed-up over PyTorch's own, by the first cache state that was timed."""
    own = next((row for row in point.rows if row.way == PYTORCH and (row.warm or row.cold)), None)
    for row in point.rows if own else ():
        for cache in (WARM, COLD):
            mine, theirs = row.timing(cache), own.timing(cache) if own else None
            if row is not own and mine and theirs and row.speedup is None:
                row.speedup = ratio_of_medians(theirs.samples, mine.samples)
