"""What speaks against the values of a report: there is no checksum, but what it stores hangs together.

A report holds most things twice: a rate and the amount and the time, a grid and its number of blocks, the share of a
roof and the roof. In 54 kernels of 14 real reports (Turing to Hopper, ncu 2022.4 to 2025.3) these agree to 1e-15; on
pages of CSV, to their printed digits. Where they do not, something was changed after the capture: the report says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from perfkit.readers.ncu import metrics, roofs, traffic, work
from perfkit.readers.ncu.results import Result

EXACT, PRINTED = 1e-6, 0.03  # how far two ways to the same value may lie apart: in a report, and on a page of CSV
_SHOWN = 5  # sentences
_PRINTED_LEAST = 1e5  # below that a printed amount may have a single digit: no judging
_SHARE_SLACK = 1.02  # counters of different replays may disagree a little
_FASTER = 1.05  # than a roof: beyond it, a value cannot be
_COMPUTE_CAPABILITIES = range(5, 16)
_MAJOR = "device__attribute_compute_capability_major"
_SHARES = re.compile(r"\w+throughput\.avg\.pct_of_peak_sustained_elapsed")
_ATTRIBUTES = (
    "device__attribute_display_name",
    _MAJOR,
    "device__attribute_compute_capability_minor",
    "device__attribute_multiprocessor_count",
    "device__attribute_max_gpu_frequency_khz",
    "device__attribute_max_mem_frequency_khz",
    "device__attribute_l2_cache_size",
    metrics.BUS_WIDTH,
)


def doubts(results: list[Result], within: float) -> list[str]:
    """Sentences about values that cannot be, or contradict each other by more than `within` (a ratio)."""
    said = [
        f"implausible: kernel {index} ({(result.function or result.name)[:60]}): {text}"
        for index, result in enumerate(results)
        for text in dict.fromkeys((*_stored(result), *_twice(result, within), *_impossible(result)))
    ]
    said += [f"implausible: {text}" for text in _between(results)]
    more = len(said) - _SHOWN
    return [*said[:_SHOWN], f"implausible: and {more} more"] if more > 0 else said


def _stored(result: Result) -> Iterator[str]:
    for name in result.contradicted:
        yield f"{name} contradicts its own average, sum or extremes"
    plain = result.function.partition("<")[0].strip()
    if plain and result.mangled.startswith("_Z") and plain not in result.mangled:
        yield "its name is not that of its symbol"


def _twice(result: Result, within: float) -> Iterator[str]:
    """Values against what others say of them."""
    for what, one, other in _pairs(result):
        largest = max(abs(one), abs(other))
        if within > EXACT and largest < _PRINTED_LEAST and what not in _WHOLE:
            continue
        if math.isfinite(one - other) and abs(one - other) > within * largest:
            yield f"{what} is {one:.6g}, and {other:.6g} by the values that it follows from"
    for name in result.values:
        if name.startswith("smsp__sass_thread_inst") and name.endswith(".per_cycle_elapsed") and within <= EXACT:
            count = result.number(name) * result.number(metrics.SMSP_CYCLES[0])
            if math.isfinite(count) and abs(count - round(count)) > 1e-3:
                yield f"{name} times the cycles is no whole number"


_WHOLE = ("the number of blocks", "the threads of a block", "the number of threads", "the number of multiprocessors")


def _pairs(result: Result) -> Iterator[tuple[str, float, float]]:
    number = result.number
    seconds = number(metrics.DURATION) / 1e9
    yield "the number of multiprocessors", number("launch__sm_count"), number("device__attribute_multiprocessor_count")
    for unit in ("dram", "sm", "smsp", "gpc", "lts"):
        cycles = f"{unit}__cycles_elapsed.avg"
        yield f"{cycles}.per_second", number(f"{cycles}.per_second"), _ratio(number(cycles), seconds)
    moved = number(metrics.DRAM_READ) + number(metrics.DRAM_WRITE)
    yield "DRAM bytes", moved, number(metrics.DRAM_RATE) * seconds
    yield "DRAM bytes", moved, traffic.by_share(result)
    yield (
        "the share of the DRAM roof",
        number(metrics.DRAM_SHARE),
        100 * _ratio(number(metrics.DRAM_RATE), roofs.dram(result)),
    )
    yield metrics.DRAM_PEAK, number(metrics.DRAM_PEAK), 2 * number(metrics.BUS_WIDTH) / 8
    for name in metrics.L1:
        yield name, number(name), number(f"{name}.per_second") * seconds
    if not result.type:  # a range or a graph has several launches: what is stored of them is a sum or an extreme
        yield from _launch_pairs(result)


def _launch_pairs(result: Result) -> Iterator[tuple[str, float, float]]:
    number = result.number
    grid, block = (math.prod(number(f"launch__{what}_dim_{axis}") for axis in "xyz") for what in ("grid", "block"))
    yield "the number of blocks", number("launch__grid_size"), grid
    yield "the threads of a block", number("launch__block_size"), block
    yield "the number of threads", number("launch__thread_count"), grid * block
    parts = (number(f"launch__shared_mem_per_block_{part}") for part in ("static", "dynamic", "driver"))
    yield "shared memory a block", number("launch__shared_mem_per_block"), sum(parts)
    yield metrics.WAVES, number(metrics.WAVES), _waves(result, grid)
    most = number("device__attribute_max_threads_per_multiprocessor")
    warps = math.ceil(block / 32) if math.isfinite(block) else math.nan
    yield (
        "the theoretical occupancy",
        number(metrics.THEORETICAL_OCCUPANCY),
        100 * _ratio(_fit(result) * warps * 32, most),
    )


def _ratio(one: float, other: float) -> float:
    return one / other if other else math.nan


def _fit(result: Result) -> float:
    """Blocks that fit on a multiprocessor; NaN where clusters decide as well."""
    limits = [result.number(n) for n in result.values if n.startswith(metrics.OCCUPANCY_LIMIT)]
    clusters = result.number("launch__cluster_size") > 1
    return math.nan if clusters else min(limits, default=math.nan)


def _waves(result: Result, grid: float) -> float:
    slots = result.number("launch__sm_count") * _fit(result)
    return _ratio(grid, slots)


def _impossible(result: Result) -> Iterator[str]:
    """Values outside of what a GPU can do."""
    number = result.number
    duration = number(metrics.DURATION)
    tests: tuple[tuple[str, float, Callable[[float], bool]], ...] = (
        ("a duration", duration, lambda v: 0 < v < 1e13),
        ("a compute capability", number(_MAJOR), _COMPUTE_CAPABILITIES.__contains__),
        ("a number of multiprocessors", number("device__attribute_multiprocessor_count"), lambda v: 1 <= v <= 1024),
        ("a width of the memory bus", number(metrics.BUS_WIDTH), lambda v: 32 <= v <= 32768),
        ("registers a thread", number("launch__registers_per_thread"), lambda v: 0 < v <= 256),
        ("threads a warp instruction", number(metrics.THREADS), lambda v: 0 <= v <= 32),
        ("working threads a warp instruction", number(metrics.THREADS_ON), lambda v: 0 <= v <= 32),
    )  # fmt: skip
    for what, value, holds in tests:
        if math.isfinite(value) and not holds(value):
            yield f"{value:.6g} is not {what}"
    for name, stored in result.values.items():
        value = stored if isinstance(stored, float) else 0.0
        if value < 0 or (_SHARES.fullmatch(name) and value > 100 * _SHARE_SLACK):
            yield f"{name} is {value:.6g}"
    clock, fastest = work.sm_clock(result), number("device__attribute_max_gpu_frequency_khz") * 1e3
    if clock > fastest * _FASTER:
        yield f"the multiprocessors ran at {clock / 1e6:.0f} MHz, with at most {fastest / 1e6:.0f}"
    achieved, theoretical = number(metrics.ACHIEVED_OCCUPANCY), number(metrics.THEORETICAL_OCCUPANCY)
    possible = theoretical if theoretical <= 100 else 100.0
    if achieved > possible * _SHARE_SLACK:
        yield f"an occupancy of {achieved:.1f} % was reached, where {possible:.1f} % is possible"
    fastest = number("device__attribute_max_mem_frequency_khz") * 1e3
    roof = roofs.dram(result)
    most = (roof if math.isfinite(roof) else 2 * number(metrics.BUS_WIDTH) / 8 * fastest) * duration / 1e9
    if number(metrics.DRAM_READ) + number(metrics.DRAM_WRITE) > most * _FASTER + 1e6:
        yield "more DRAM traffic than the memory can move in that time"
    limits = work.roofs(result)
    for resource, value in work.counted(result).items():
        if value > limits.get(resource, math.inf) * duration / 1e9 * _FASTER + 1e6:
            yield f"more {resource.replace('_', ' ')} work than the GPU can do in that time"


def _between(results: list[Result]) -> Iterator[str]:
    """What the kernels of one device must have in common."""
    identities = [result.identity for result in results if result.identity]
    if len(set(identities)) < len(identities):
        yield "a result is there more than once"
    known: dict[tuple[float, str], object] = {}
    kinds: dict[tuple[str, ...], set[str]] = {}
    counts: dict[tuple[str, ...], int] = {}
    for result in results:
        device = result.number("launch__device_id")
        peaks = [name for name in result.values if name.endswith(".peak_sustained")]
        for name in (*_ATTRIBUTES, *peaks):
            if name in result.values and known.setdefault((device, name), result.values[name]) != result.values[name]:
                yield f"{name} is not the same for all kernels"
                known[device, name] = result.values[name]
        if result.sections and not result.type:
            sections = tuple(sorted(result.sections))
            if counts.setdefault(sections, result.metrics) != result.metrics and result.identity:
                yield "kernels with the same sections hold different numbers of metrics"
            names = {name for name in result.values if not name.startswith(("launch__", "device__"))}
            if kinds.setdefault(sections, names) != names:
                odd = sorted(kinds[sections] ^ names)[0]
                yield f"of kernels with the same sections some have {odd} and others not"
                kinds[sections] = names
