"""From observations to ceilings: the best of each, its spread, and the checks that the measurement makes of itself.

Pure: no clock, no machine. What is judged here: results were right, separate rounds agree, larger working sets are not
faster, torch's own operators stay below the roof, and nothing exceeds the datasheet or a bound that physics sets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perfkit import units
from perfkit.hardware.attention import ATTENTION, rates_of
from perfkit.hardware.ceilings import BANDWIDTHS, FUNCTIONS, IN_PLACE, MEMORY, READING, Ceiling, Ceilings, SelfCheck
from perfkit.hardware.observation import AGREE, Observation

# The bytes that a pattern reads, among those that count.
READ_SHARE = {"sum": 1.0, "triad": 2 / 3, "copy": 1 / 2, "negate": 1 / 2, "torch sum": 1.0}
TOLERANCE = 0.05  # by how much a check may be missed through noise alone


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the device that were not measured: `bounds` must not be exceeded, `datasheet` is only shown."""

    fingerprint: str
    device: str
    device_name: str
    threads: int
    caches: Mapping[str, float] = {}
    datasheet: Mapping[str, float] = {}
    datasheet_source: str = ""
    bounds: Mapping[str, float] = {}
    x86: bool = False  # fp32 and fp64 products run on the vector units
    software: Mapping[str, str] = {}


def assemble(observations: Iterable[Observation], machine: DeviceFacts, measured_at: str) -> Ceilings:
    """Ceilings from everything seen; wrong results are left out and reported. Raises `ValueError` for no bandwidth."""
    seen = list(observations)
    right = [o for o in seen if o.ok and o.rate > 0]
    memory, in_place = _memory(right, MEMORY), _memory(right, IN_PLACE)
    reading = _memory(_reads(right), READING)
    compute = _compute(right, machine)
    if not memory:
        raise ValueError("no bandwidth was measured")
    result = Ceilings(
        fingerprint=machine.fingerprint,
        device=machine.device,
        device_name=machine.device_name,
        measured_at=measured_at,
        threads=machine.threads,
        bandwidth=[(c.working_set or 0.0, c.value) for c in memory],
        in_place=[(c.working_set or 0.0, c.value) for c in in_place],
        reading=[(c.working_set or 0.0, c.value) for c in reading],
        compute={c.resource: c.value for c in compute},
        details=[*memory, *in_place, *reading, *compute],
        libraries=_libraries(right),
        attention=rates_of((o.what, o.sizes, o.rate) for o in right if o.resource == ATTENTION and o.sizes),
        caches=dict(machine.caches),
        datasheet=dict(machine.datasheet),
        datasheet_source=machine.datasheet_source,
        software=dict(machine.software),
    )
    result.checks = [
        _results_right(seen),
        _rounds_agree(result),
        _falls_with_size(result),
        _torch_below(right),
        _vector_above_product(right, machine),
        _within_bounds(result, machine),
    ]
    result.warnings = [c.text for c in result.checks if c.ok is False]
    return result


SHORTEST_JUDGED_S = 5e-6  # `perfkit.analysis.roofline.excluded`: a launch on a GPU below it is too small


def unsettled(observations: Iterable[Observation]) -> list[int]:
    """Working sets (bytes) whose two best rounds do not agree yet, or that had one round only."""
    right = [o for o in observations if o.ok]
    memory = [*_memory(right, MEMORY), *_memory(right, IN_PLACE), *_memory(_reads(right), READING)]
    return sorted({int(c.working_set or 0) for c in memory if c.spread is None or c.spread > AGREE})


def _memory(seen: Sequence[Observation], resource: str) -> list[Ceiling]:
    """The best pattern of each working set for one of `BANDWIDTHS`, by rising size."""
    sizes: dict[float, list[Observation]] = defaultdict(list)
    for o in seen:
        if o.resource == resource and o.working_set:
            sizes[o.working_set].append(o)
    return [_best(group) for _, group in sorted(sizes.items())]


def _reads(seen: Sequence[Observation]) -> list[Observation]:
    """Return the rates of reading as observations of `READING`; none if no compiled program ran.

    One that also writes is a witness too: what it reads, the memory can give. torch's operators alone set no such roof:
    on a GPU, and on a CPU without a compiler, its sum may be what is slow.
    """
    if not any(o.by == "c" for o in seen):
        return []
    return [
        msgspec.structs.replace(o, resource=READING, what=f"reads of {o.what}", rate=o.rate * READ_SHARE[o.what])
        for o in seen
        if o.resource in (MEMORY, IN_PLACE) and o.what in READ_SHARE
    ]


def _compute(seen: Sequence[Observation], machine: DeviceFacts) -> list[Ceiling]:
    groups: dict[str, list[Observation]] = defaultdict(list)
    for o in seen:
        if o.resource not in (*BANDWIDTHS, FUNCTIONS, ATTENTION):
            groups[o.resource].append(o)
    ceilings = {resource: _best(group) for resource, group in groups.items()}
    if machine.x86:
        _raise_vector(ceilings)
    if "vector_fp32" in ceilings:
        for resource in ("vector_bf16", "vector_fp16"):
            how = f"{resource[7:]} elements are computed in fp32, as PyTorch does: the fp32 ceiling"
            ceilings[resource] = msgspec.structs.replace(ceilings["vector_fp32"], resource=resource, how=how)
    return [ceilings[name] for name in sorted(ceilings)]


def _libraries(seen: Sequence[Observation]) -> dict[str, dict[str, float]]:
    """The best rate of each library whose matrix products or functions were timed, where there are several."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for o in seen:
        if o.resource.startswith("matrix_") or o.resource == FUNCTIONS:
            library = o.how.rsplit(", ", 1)[0]
            found[o.resource][library] = max(o.rate, found[o.resource].get(library, 0.0))
    return {resource: rates for resource, rates in sorted(found.items()) if len(rates) > 1}


def _raise_vector(ceilings: dict[str, Ceiling]) -> None:
    """On x86 fp32 and fp64 products run on the vector units, so these do at least as much, measured or not."""
    for name in ("fp32", "fp64"):
        product, vector = ceilings.get(f"matrix_{name}"), ceilings.get(f"vector_{name}")
        if product and (vector is None or vector.value < product.value):
            how = f"{product.how}: a product on the vector units"
            ceilings[f"vector_{name}"] = msgspec.structs.replace(product, resource=f"vector_{name}", how=how)


def _best(group: Sequence[Observation]) -> Ceiling:
    """The best of `group` as a ceiling; its samples are the best of each round by the same program, the best first."""
    best = max(group, key=lambda o: o.rate)
    rounds: dict[int, float] = {}
    for o in group:
        if o.by == best.by:
            rounds[o.round] = max(o.rate, rounds.get(o.round, 0.0))
    samples = tuple(sorted(rounds.values(), reverse=True))
    return Ceiling(
        name=best.what,
        resource=best.resource,
        unit="B/s" if best.resource in BANDWIDTHS else "FLOP/s",
        value=best.rate,
        how=best.how,
        samples=samples,
        spread=1 - samples[1] / samples[0] if len(samples) > 1 else None,
        working_set=best.working_set,
    )


def _results_right(seen: Sequence[Observation]) -> SelfCheck:
    wrong = [o for o in seen if not o.ok]
    text = f"all {len(seen)} measurements gave right results"
    if wrong:
        text = f"{wrong[0].what} ({wrong[0].how}) gave wrong results and was left out, with {len(wrong) - 1} more"
    return SelfCheck("results", not wrong, text)


def _rounds_agree(ceilings: Ceilings) -> SelfCheck:
    known = [c for c in ceilings.details if c.spread is not None and _long_enough(c, ceilings.device)]
    worst = max(known, key=lambda c: c.spread or 0.0, default=None)
    if worst is None or worst.spread is None:
        return SelfCheck("repeatable", None, "nothing was measured twice")
    text = f"the two best rounds agree within {worst.spread:.0%} ({_words(worst)} the least)"
    if worst.spread <= AGREE:
        return SelfCheck("repeatable", True, text)
    return SelfCheck(
        "repeatable", False, f"{text}: was the machine busy? Measure again with `perfkit ceilings --refresh`"
    )


def _long_enough(ceiling: Ceiling, device: str) -> bool:
    """Return whether one pass over the working set takes as long as the shortest launch that is judged on a GPU.

    Shorter ones vary from round to round with how launches follow each other, and no kernel is judged by them.
    """
    return device == "cpu" or not ceiling.working_set or ceiling.working_set / ceiling.value >= SHORTEST_JUDGED_S


def _falls_with_size(ceilings: Ceilings) -> SelfCheck:
    """Every size against the best of all smaller ones."""
    best, worst, where = 0.0, 0.0, 0.0
    for size, rate in ceilings.bandwidth:
        if best and rate / best - 1 > worst:
            worst, where = rate / best - 1, size
        best = max(best, rate)
    if worst <= TOLERANCE:
        return SelfCheck("falls with size", True, "no working set is faster than the fastest of the smaller ones")
    place = units.text(where, "iB")
    text = f"{place} is {worst:.0%} faster than any smaller working set; smaller ones get its roof"
    # Few bytes over many threads, or over a GPU, are bound by latency: no defect, and the envelope takes care of it.
    return SelfCheck("falls with size", None, text)


def _torch_below(seen: Sequence[Observation]) -> SelfCheck:
    """torch's operators against the compiled program, at the sizes where both ran."""
    best: dict[tuple[float, str], float] = defaultdict(float)
    for o in seen:
        if o.resource == MEMORY and o.working_set:
            best[o.working_set, o.by] = max(best[o.working_set, o.by], o.rate)
    ratios = {
        size: rate / best[size, "c"] for (size, by), rate in best.items() if by == "torch" and (size, "c") in best
    }
    if not ratios:
        return SelfCheck(
            "torch below the roof", None, "torch's operators set the memory roof themselves: nothing to compare"
        )
    size = max(ratios, key=lambda s: ratios[s])
    share, place = ratios[size], units.text(size, "iB")
    if share <= 1 + TOLERANCE:
        return SelfCheck(
            "torch below the roof", True, f"torch's own operators reach at most {share:.0%} of it (at {place})"
        )
    text = f"torch's own operators were {share - 1:.0%} faster than the compiled program at {place}: the roof is theirs"
    return SelfCheck("torch below the roof", False, text)


def _vector_above_product(seen: Sequence[Observation], machine: DeviceFacts) -> SelfCheck:
    def best(resource: str, by: str) -> float:
        return max((o.rate for o in seen if o.resource == resource and o.by == by), default=0.0)

    name = "vector units"
    product, vector = best("matrix_fp32", "torch"), best("vector_fp32", "c")
    if not (machine.x86 and product and vector):
        return SelfCheck(name, None, "vector units and matrix product cannot be compared here")
    share = product / vector
    text = f"the fp32 matrix product reaches {share:.0%} of the vector units"
    if share <= 1 + TOLERANCE:
        return SelfCheck(name, True, text)
    return SelfCheck(name, False, f"{text}: the vector roof was raised to that")


def _within_bounds(ceilings: Ceilings, machine: DeviceFacts) -> SelfCheck:
    """Check main memory and arithmetic against the datasheet, and against what the hardware cannot exceed."""
    measured = {"memory": ceilings.dram_bandwidth, **ceilings.compute}
    limits = {**machine.datasheet, **machine.bounds}
    shares = {name: measured[name] / limit for name, limit in limits.items() if name in measured and limit}
    if not shares:
        return SelfCheck("within theory", None, "no theoretical peak of this device is known")
    name = max(shares, key=lambda n: shares[n])
    text = f"{name.replace('_', ' ')} reaches {shares[name]:.0%} of its theoretical peak"
    return SelfCheck("within theory", shares[name] <= 1 + TOLERANCE, text)


def _words(ceiling: Ceiling) -> str:
    if ceiling.resource in BANDWIDTHS:
        return f"{ceiling.name} at {units.text(ceiling.working_set, 'iB')}"
    return ceiling.resource.replace("_", " ")
