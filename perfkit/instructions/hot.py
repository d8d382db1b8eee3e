"""The instructions and source lines at which the warps of a kernel were sampled most, and what a fix saves at most."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from perfkit.instructions.results import (
    EXECUTED,
    IDEAL_SECTORS,
    IDEAL_WAVEFRONTS,
    ISSUED,
    LOCAL_SECTORS,
    SAMPLES,
    SECTORS,
    THREADS_ON,
    WAVEFRONTS,
    HotKernel,
    HotSpot,
    Instruction,
    KernelCode,
    Marker,
)
from perfkit.instructions.waits import producer

KEPT = 10  # instructions and lines of each kernel
_WARP = 32
_SAID = 0.01  # of the samples: a rarer state is not named
_BRANCHES = ("BRA", "BRX", "EXIT", "RET", "CALL", "BSYNC", "BSSY", "BREAK", "WARPSYNC", "BAR")
_WORD, _SECTOR = 4, 32  # bytes
_WASTEFUL = 1.05  # times the least sectors or wavefronts: less is rounding
NO_SAMPLES = "The report has no warp samples: capture it with `--section SourceCounters` (or `--set full`)."
NO_LINES = "The report names no source lines: compile with `-lineinfo` (nvcc) and capture with `--import-source yes`."
NO_SOURCE = "The text of the source is not in the report: capture with `--import-source yes`."


def hot_kernel(code: KernelCode, kept: int | None = KEPT) -> HotKernel:
    """Return the `kept` hottest instructions and lines of a kernel (None: all that were sampled)."""
    order = sorted(range(len(code.instructions)), key=lambda place: -code.instructions[place].counts.get(SAMPLES, 0.0))
    floor = _floor(code)
    hot = [_instruction(code, place, floor) for place in order[:kept] if code.instructions[place].counts.get(SAMPLES)]
    return HotKernel(
        kernel=code.name,
        launches=code.launches,
        duration_ns=code.duration_ns,
        samples=code.samples,
        instructions=hot,
        lines=_lines(code, floor)[:kept],
        notes=list(_notes(code)),
    )


def _notes(code: KernelCode) -> Iterable[str]:
    if not code.samples:
        yield NO_SAMPLES
    if not any(one.line for one in code.instructions):
        yield NO_LINES
    elif not code.sources:
        yield NO_SOURCE


def place_of(one: Instruction) -> str:
    """Return `file.cu:12` of an instruction with a known line, else "+0x1a0"."""
    return f"{PurePath(one.file).name}:{one.line}" if one.line else f"+{one.at:#x}"


def operation_of(one: Instruction) -> str:
    """Return the operation of an instruction without its predicate and operands."""
    words = one.sass.split()
    return next((word for word in words if not word.startswith("@")), "")


def source_text(code: KernelCode, file: str, line: int) -> str:
    """Return a line of an imported file, "" where it is missing."""
    text = code.sources.get(file, "").splitlines()
    return text[line - 1].strip() if 0 < line <= len(text) else ""


def _instruction(code: KernelCode, place: int, floor: float) -> HotSpot:
    one = code.instructions[place]
    spot = _spot(code, [place], f"+{one.at:#x}", one.sass, floor)
    spot.at, spot.sass, spot.ptx = one.at, one.sass, one.ptx
    if one.line:
        spot.where = f"+{one.at:#x} {place_of(one)}"
    spot.nvidia = _remarks(marker for marker in code.markers if marker.at == one.at)
    return spot


def _remarks(markers: Iterable[Marker]) -> list[str]:
    """NVIDIA's words, each once."""
    return list(dict.fromkeys(marker.message for marker in markers))


def _lines(code: KernelCode, floor: float) -> list[HotSpot]:
    """The lines of a kernel that were sampled, the hottest first."""
    by_line: dict[tuple[str, int], list[int]] = {}
    for place, one in enumerate(code.instructions):
        if one.line:
            by_line.setdefault((one.file, one.line), []).append(place)
    found = []
    for (file, line), places in by_line.items():
        hottest = max((code.instructions[p] for p in places), key=lambda one: one.counts.get(SAMPLES, 0.0))
        spot = _spot(code, places, f"{PurePath(file).name}:{line}", source_text(code, file, line), floor)
        spot.sass, spot.ptx = hottest.sass, hottest.ptx
        spot.nvidia = _remarks(m for m in code.markers if m.at is None and (m.file, m.line) == (file, line))
        found.append(spot)
    return sorted((spot for spot in found if spot.samples), key=lambda spot: -spot.samples)


def _spot(code: KernelCode, places: Sequence[int], where: str, text: str, floor: float) -> HotSpot:
    """The costs of instructions taken together. A ratio is one of sums, over those that have both counts."""
    chosen = [code.instructions[place] for place in places]
    samples, whole = _sum(chosen, SAMPLES) or 0.0, code.samples
    stalls: dict[str, float] = {}
    for one in chosen:
        for reason, count in one.stalls.items():
            stalls[reason] = stalls.get(reason, 0.0) + count
    waiting = {reason: count for reason, count in stalls.items() if reason not in ISSUED}
    reasons = sorted(waiting.items(), key=lambda item: -item[1])
    sectors, ideal = _ratio(chosen, SECTORS, EXECUTED), _ratio(chosen, IDEAL_SECTORS, EXECUTED)
    fronts = _ratio(chosen, WAVEFRONTS, IDEAL_WAVEFRONTS)
    counted = [one for one in chosen if THREADS_ON in one.counts and not _jumps(one)]
    executed, on = _sum(counted, EXECUTED), _sum(counted, THREADS_ON)
    awaited = _awaited(code, places, reasons[0][0]) if reasons else None
    spot = HotSpot(
        where=where,
        code=text,
        samples=samples,
        share=samples / whole if whole else 0.0,
        reasons=[(reason, count / samples) for reason, count in reasons if count >= _SAID * samples > 0],
        waits_for=f"{operation_of(awaited)} at {place_of(awaited)}" if awaited else "",
        sectors_per_request=sectors,
        ideal_sectors_per_request=ideal,
        conflicts=fronts - 1 if fronts is not None else None,
        local_sectors=_sum(chosen, LOCAL_SECTORS),
        threads_off=1 - on / (_WARP * executed) if on is not None and executed else None,
    )
    own, others = _needless(chosen), _needless([awaited]) if awaited else ""
    waits = sum(map(_waiting, code.instructions)) if own else sum(waiting.values())
    spot.saving_ns, spot.why = _bound(code, waits, own, others, floor)
    return spot


def _waiting(one: Instruction) -> float:
    """The samples at an instruction at which warps waited."""
    return sum(count for state, count in one.stalls.items() if state not in ISSUED)


def _bound(code: KernelCode, waiting: float, own: str, others: str, floor: float) -> tuple[float | None, str]:
    """The most time that is saved where no warp waits there any more, and why it is not more.

    Warps are sampled over their whole lives: without these waits each lives so much shorter. What the busiest unit does
    takes `floor` of the time, and stays. Needless work of its `own` lets warps wait anywhere for the unit that does it.
    """
    if code.duration_ns is None or not code.samples:
        return None, ""
    share = waiting / code.samples
    if share <= 1 - floor:
        why = f"{own}, for which warps may wait anywhere" if own else "its waits are gone and all else stays"
        return share * code.duration_ns, f"{why}; {others}" if others and not own else why
    return (1 - floor) * code.duration_ns, f"{code.unit} is busy {floor:.0%} of the time, which stays"


def _floor(code: KernelCode) -> float:
    """The share of the time that the busiest unit needs; 0 where it is unknown, or some of its work is needless."""
    needless = code.busiest is None or any(_needless([one]) for one in code.instructions)
    return 0.0 if needless else code.busiest or 0.0


def _needless(chosen: Iterable[Instruction]) -> str:
    """Why instructions move more than they have to; "" where they do not, or it is not counted."""
    chosen = list(chosen)
    sectors, fronts = _ratio(chosen, SECTORS, IDEAL_SECTORS), _ratio(chosen, WAVEFRONTS, IDEAL_WAVEFRONTS)
    if sectors and sectors > _WASTEFUL:
        return f"{1 - 1 / sectors:.0%} of the sectors are needless"
    if fronts and fronts > _WASTEFUL:
        return f"bank conflicts make {1 - 1 / fronts:.0%} of the wavefronts"
    if any(map(shares_address, chosen)):
        return "threads of a warp take turns at one address"
    return "its local memory is spilled registers or indexed arrays" if _sum(chosen, LOCAL_SECTORS) else ""


def is_atomic(one: Instruction) -> bool:
    """Return whether an instruction is an atomic operation or a reduction in memory."""
    return operation_of(one).startswith(("ATOM", "RED")) and not operation_of(one).startswith("REDUX")


def shares_address(one: Instruction) -> bool:
    """Return whether threads of one warp are known to share the address of an atomic operation: more of them take part
    than the sectors have words."""
    sectors, threads = one.counts.get(SECTORS), one.counts.get(THREADS_ON)
    if not sectors or threads is None or not is_atomic(one):
        return False
    width = re.search(r"\.F?(64|128)(?=\.|$)", operation_of(one))
    return threads * (int(width[1]) // 8 if width else _WORD) > 1.01 * _SECTOR * sectors


def _awaited(code: KernelCode, places: Sequence[int], reason: str) -> Instruction | None:
    """The load that the hottest of the instructions waits for."""
    hottest = max(places, key=lambda place: code.instructions[place].counts.get(SAMPLES, 0.0))
    return producer(code.instructions, hottest, reason)


def _jumps(one: Instruction) -> bool:
    """Return whether an instruction is a branch: threads that do not take it lose nothing."""
    return any(word.startswith(_BRANCHES) for word in one.sass.split()[:2])


def _ratio(chosen: Iterable[Instruction], above: str, below: str) -> float | None:
    """A ratio of sums, over the instructions that have both counts."""
    both = [one.counts for one in chosen if above in one.counts and below in one.counts]
    whole = sum(counts[below] for counts in both)
    return sum(counts[above] for counts in both) / whole if whole else None


def _sum(chosen: Iterable[Instruction], name: str) -> float | None:
    """The sum of a count over the instructions that have it; None where none has."""
    known = [one.counts[name] for one in chosen if name in one.counts]
    return sum(known) if known else None
