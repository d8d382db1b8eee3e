"""Values of a report that cannot be: a launch that contradicts itself, or more than a GPU can do in that time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from perfkit.readers.ncu import metrics, roofs, work
from perfkit.readers.ncu.results import NcuResult

_SHOWN = 5  # sentences
_SHARE_SLACK = 1.02  # counters of different replays may disagree a little
_FASTER = 1.05  # than a roof: beyond it, a value cannot be
_COMPUTE_CAPABILITIES = range(5, 16)
_MAJOR = "device__attribute_compute_capability_major"
_SHARES = re.compile(r"\w+throughput\.avg\.pct_of_peak_sustained_elapsed")


def doubts(results: list[NcuResult]) -> list[str]:
    """Return sentences about values that cannot be."""
    said = [
        f"implausible: kernel {index} ({(result.function or result.name)[:60]}): {text}"
        for index, result in enumerate(results)
        for text in dict.fromkeys((*_contradicted(result), *_impossible(result)))
    ]
    more = len(said) - _SHOWN
    return [*said[:_SHOWN], f"implausible: and {more} more"] if more > 0 else said


def _contradicted(result: NcuResult) -> Iterator[str]:
    """Yield the numbers of a launch that are stored twice and differ."""
    if result.type:  # a range or a graph has several launches
        return
    number = result.number
    grid, block = (math.prod(number(f"launch__{what}_dim_{axis}") for axis in "xyz") for what in ("grid", "block"))
    for what, stored, follows in (
        ("blocks", number("launch__grid_size"), grid),
        ("threads of a block", number("launch__block_size"), block),
        ("threads", number("launch__thread_count"), grid * block),
        ("multiprocessors", number("launch__sm_count"), number("device__attribute_multiprocessor_count")),
    ):
        if math.isfinite(stored - follows) and stored != follows:
            yield f"the number of {what} is {stored:.6g}, and {follows:.6g} by other values"


def _impossible(result: NcuResult) -> Iterator[str]:
    """Yield the values that are outside of what a GPU can do."""
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
