"""From what a person asks for to a benchmark: which operations, sizes, implementations, and what they must be."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfkit.bench import sizes as size_texts
from perfkit.bench.benchmark import Benchmark, Way
from perfkit.bench.catalog import benchmark
from perfkit.bench.plain import NAMES, plain
from perfkit.bench.results import COLD, WARM, Bench
from perfkit.bench.run import BenchOptions, Progress, bench, fit
from perfkit.errors import Unavailable, UsageError
from perfkit.hardware.access import no_gpu
from perfkit.hardware.ceilings import Ceilings
from perfkit.hardware.identity import version_of
from perfkit.hardware.measure import BUSY, check_device, load_a_core
from perfkit.kernels import catalog

CACHES = {"both": (WARM, COLD), WARM: (WARM,), COLD: (COLD,)}
_VERSIONS = ("torch", "triton")


@dataclass(frozen=True)
class BenchPlan:
    """The ways and sizes to run; `changed` names the sizes that a sweep changes together."""

    ways: tuple[Way, ...]
    sizes: tuple[Mapping[str, int], ...]
    changed: tuple[str, ...] = ()


def options(device: str, seconds: float, cache: str, seed: int | None) -> BenchOptions:
    """Checked options. Raises `UsageError` for an invalid value, `Unavailable` for a missing device."""
    if cache not in CACHES:
        raise UsageError(f"--cache {cache}: the cache states are {', '.join(CACHES)}.")
    if not 0 < seconds <= 600:
        raise UsageError("--seconds must lie between 0 and 600.")
    full = check_device(device)
    if full != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise no_gpu(f"--device {device}")
        if int(full.split(":")[1]) >= torch.cuda.device_count():
            raise Unavailable(f"--device {device}: no such GPU.", "`perfkit doctor` says more.")
        torch.cuda.set_device(full)
    return BenchOptions(full, seconds, CACHES[cache], secrets.randbits(31) if seed is None else seed)


def benchmarks(name: str, device: str, blocks: bool, extra_dirs: Sequence[str]) -> list[Benchmark]:
    """The plain operation, the catalog's operation, or all operations of the family called `name`.

    Raises `UsageError` for an unknown name.
    """
    if name in NAMES:
        return [plain(name, device, blocks, extra_dirs)]
    families = catalog(extra_dirs)
    short = name.removeprefix("perfkit::")
    found = [benchmark(f, o, device, blocks) for f in families for o in f.operations if short in (o.name, f.name)]
    if not found:
        operations = {o.name for f in families for o in f.operations}
        known = ", ".join(sorted({*NAMES, *(f.name for f in families), *operations}))
        raise UsageError(f"There is no operation or family called {name!r}.", f"There are: {known}.")
    return found


def chosen_ways(benchmark: Benchmark, implementations: Sequence[str], languages: Sequence[str]) -> tuple[Way, ...]:
    """The ways asked for; all but the optional ones when nothing is. PyTorch's own is always among them.

    An implementation is a way's name (`c:2`, `pytorch`) or a language, which names its fastest version. Raises
    `UsageError` for one that does not exist.
    """
    if not implementations and not languages:
        return tuple(way for way in benchmark.ways if not way.optional)
    wanted = set()
    for asked in implementations:
        matching = [w.name for w in benchmark.ways if asked in (w.name, w.language)]
        if not matching:
            raise _no_way(benchmark, asked)
        wanted.add(matching[-1])
    for asked in languages:
        of_language = {w.name for w in benchmark.ways if w.language == asked}
        if not of_language:
            raise _no_way(benchmark, asked)
        wanted |= of_language
    return tuple(w for w in benchmark.ways if w.name in wanted or w.name == "pytorch")


def _no_way(benchmark: Benchmark, asked: str) -> UsageError:
    known = ", ".join(way.name for way in benchmark.ways)
    return UsageError(f"{benchmark.name} has no implementation {asked!r} on this device.", f"It has {known}.")


def plan(
    chosen: Benchmark, sizes: str, sweep: str, implementations: Sequence[str], languages: Sequence[str], device: str
) -> BenchPlan:
    """Return the parts of `chosen` to run. Raises `UsageError` for a size or an implementation that it does not
    have."""
    given = {**chosen.defaults(device), **size_texts.parse(sizes, chosen.sizes)}
    ways = chosen_ways(chosen, implementations, languages)
    if not sweep:
        return BenchPlan(ways, (given,))
    changed, values = size_texts.parse_sweep(sweep, chosen.sizes)
    return BenchPlan(ways, tuple({**given, **dict.fromkeys(changed, value)} for value in values), changed)


def run(
    chosen: Benchmark,
    planned: BenchPlan,
    dtypes: Sequence[str],
    options: BenchOptions,
    ceilings: Ceilings | None,
    say: Progress,
) -> Bench:
    """The benchmark, with the fit of its sweep and what stands about the machine."""
    load = load_a_core()
    found = bench(chosen, planned.ways, planned.sizes, dtypes, options, ceilings, say)
    if planned.changed:
        fit(found, planned.changed)
    found.environment = {name: version for name in _VERSIONS if (version := version_of(name))}
    if options.device == "cpu" and any(way.language == "triton" for way in planned.ways):
        found.notes.append("Triton runs under its interpreter here: its times say nothing of a GPU.")
    if load is not None and load > BUSY:
        found.notes.append(f"Others used {load:.0%} of the CPUs when this began: times are longer and vary more.")
    return found
