"""The least time that the bytes of a row take.

On a CPU, and on a GPU whose L2 is unknown, the ceiling is the bandwidth measured at the row's working set, its distinct
bytes; or that of reading at this size, where what is read takes longer by it than all bytes do (measured on CPUs). On a
GPU whose L2 has the known size C:

    fits L2          distinct bytes ≤ C: bytes over the rate of L2, measured at the next smaller working set
    … and is faster  by more than noise: near its size L2 held a part where it was measured, and here more. Its roof
                     is what the best rate of L2 needs, or its own time where that is more
    does not         bytes over the rate of main memory
    … and is faster  by more than noise: L2 held a part, at most C of what it reads, and at most C of what it writes is
                     there still. Its roof is what main memory and L2 need at least, or its own time where that is more:
                     how much L2 held nobody knows, so that it counts as at its roof and not above it
    counted          DRAM bytes that counters saw, over the rate of main memory; its minimal bytes pass L2, at L2's rate

Whichever it is, what a row reads of tensors that were last used long ago (`perfkit.analysis.roofline.reuse`) takes at
least the time of the bytes at the bandwidth of that distance: on a CPU by the curve, of reading where it was
measured; on a GPU by main memory where L2 does not hold the distance. A row that is faster than this and not than the
rest of its roof counts as at its roof: caches may keep a part of what passes, and how much of it nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfkit import units
from perfkit.analysis.roofline.reuse import Uses
from perfkit.columns import matching

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.hardware.ceilings import Ceiling, Ceilings

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

PART, MORE = "L2 held a part of the bytes", "L2 held more of the bytes than where this was measured"
BETWEEN, KEPT = "by what is read between two uses", "a cache held a part of the bytes"
TOLERANCE = 0.05  # a row this much faster than its roof is noise; beyond it something else must explain it


@dataclass(frozen=True)
class Bytes:
    """Bytes of each row, NaN where unknown: `moved` by counters where they saw them (`counted`), else minimal bytes."""

    time: Reals  # ns
    read: Reals
    written: Reals
    moved: Reals
    counted: Booleans
    in_place: Booleans

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Bytes:
        """Return the arrays of the rows in `frame`."""
        read, written = frame["bytes_read"].to_numpy(float), frame["bytes_written"].to_numpy(float)
        dram = frame["dram_bytes"].to_numpy(float)
        both = frame["dram_read_bytes"].to_numpy(float) + frame["dram_write_bytes"].to_numpy(float)
        dram = np.where(np.isfinite(dram), dram, both)
        counted = np.isfinite(dram)
        moved = np.where(counted, dram, read + written)
        time = frame["duration_ns"].to_numpy(float)
        return cls(time, read, written, moved, counted, _in_place(frame) & ~counted)

    @property
    def minimal(self) -> Reals:
        """Each input read once, each output written once."""
        return self.read + self.written

    @property
    def distinct(self) -> Reals:
        """An operator in place writes into what it read; any other into storage of its own."""
        return np.where(self.in_place, self.read, self.minimal)


@dataclass(frozen=True)
class MemoryRoof:
    """For each row its least time in ns (NaN: unknown), whether L2 sets it, and the index of its ceiling in `texts`
    (−1: none). `helped` are rows faster than that, of whose bytes a cache held a part or more than measured."""

    time: Reals
    by_l2: Booleans
    helped: Booleans
    text: Integers
    texts: list[str]


def in_caches(of: Bytes, ceilings: Ceilings) -> Booleans:
    """Rows that a cache may serve by their distinct bytes: when these were last used matters."""
    largest = ceilings.l2_capacity or max((size for size, _ in ceilings.bandwidth), default=0.0)
    return ~of.counted & (of.distinct <= largest)


def memory_roof(of: Bytes, again: Uses, ceilings: Ceilings) -> MemoryRoof:
    """The roof of every row; work in place is judged by what was measured in place."""
    rows = len(of.time)
    nothing = np.zeros(rows, bool)
    result = MemoryRoof(np.full(rows, np.nan), nothing, nothing, np.full(rows, -1, np.int64), [])
    for chosen, in_place in ((~of.in_place, False), (of.in_place, True)):
        if not ceilings.envelope(in_place):
            continue
        capacity = ceilings.l2_capacity
        if capacity is None:
            one = _by_distance(_by_curve(of, ceilings, in_place), of, again, ceilings)
        else:
            one = _by_l2(of, again, ceilings, in_place, capacity)
        result = _joined(result, one, chosen & np.isfinite(of.moved))
    return result


def passing(read: Reals, written: Reals, ceilings: Ceilings) -> Reals:
    """Return the expected time of bytes on a GPU, ns, by the rates of the roof, without a measured time.

    What is both read and written passes at the rate of work in place, which reads a byte for each that it writes: main
    memory is slower at that than at reading or writing alone. The rest passes at the other curve's rate.
    """
    total, both = read + written, 2 * np.minimum(read, written)
    return (both / _rates(ceilings, total, in_place=True) + (total - both) / _rates(ceilings, total)) * 1e9


def _rates(ceilings: Ceilings, distinct: Reals, in_place: bool = False) -> Reals:
    """Bytes/s of L2 where it holds so many, else of main memory; by the working set where L2's size is unknown."""
    curve, capacity = ceilings.envelope(in_place), ceilings.l2_capacity
    if capacity is None:
        return _level(curve, distinct)[1]
    inside = [point for point in curve if point[0] <= capacity]
    return np.where((distinct <= capacity) & bool(inside), _level(inside, distinct)[1], curve[-1][1])


def _joined(first: MemoryRoof, second: MemoryRoof, chosen: Booleans) -> MemoryRoof:
    """`second` in the rows that are `chosen`, `first` in the others."""
    return MemoryRoof(
        np.where(chosen, second.time, first.time),
        np.where(chosen, second.by_l2, first.by_l2),
        np.where(chosen, second.helped, first.helped),
        np.where(chosen, second.text + len(first.texts), first.text),
        first.texts + second.texts,
    )


def _by_curve(of: Bytes, ceilings: Ceilings, in_place: bool) -> MemoryRoof:
    """By the working set. Bytes that a counter saw pass main memory, whatever the working set."""
    curve = ceilings.envelope(in_place)
    level, rate = _level(curve, of.distinct)
    level, rate = np.where(of.counted, len(curve) - 1, level), np.where(of.counted, curve[-1][1], rate)
    nothing, time = np.zeros(len(of.time), bool), of.moved / rate * 1e9
    texts = _texts(curve, ceilings, in_place)
    reading = ceilings.reading_envelope()
    if reading:
        place, rate = _level(reading, of.distinct)
        alone = of.read / rate * 1e9
        longer = ~of.counted & (alone > time)
        time, level = np.where(longer, alone, time), np.where(longer, place + len(texts), level)
        texts += [_named(ceilings.reading_for(size), rate) for size, rate in reading]
    return MemoryRoof(time, nothing, nothing, level, texts)


def _by_distance(roof: MemoryRoof, of: Bytes, again: Uses, ceilings: Ceilings) -> MemoryRoof:
    """`roof`, or by the bandwidth at the distance of what a row reads again, where that takes longer."""
    reading = ceilings.reading_envelope()
    curve = reading or ceilings.envelope()
    found = [ceilings.reading_for(size) if reading else ceilings.bandwidth_for(size) for size, _ in curve]
    named = [f"{_named(one, rate)}; {BETWEEN}" for one, (_, rate) in zip(found, curve, strict=True)]
    farther, level = _farther(of, again, curve)
    longer = farther > roof.time
    helped = longer & (farther > (1 + TOLERANCE) * of.time)
    farther = np.where(helped, np.maximum(of.time, roof.time), farther)
    text = len(roof.texts) + level + np.where(helped, len(curve), 0)
    return MemoryRoof(
        np.where(longer, farther, roof.time), roof.by_l2, helped, np.where(longer, text, roof.text),
        [*roof.texts, *named, *(f"{one}; {KEPT}" for one in named)],
    )  # fmt: skip


def _farther(of: Bytes, again: Uses, curve: list[tuple[float, float]]) -> tuple[Reals, Integers]:
    """For each row the ns that what it reads again takes at least, and the place in `curve` that says so.

    The farthest tensors pass at the bandwidth of their distance; so do they with the next, at that one's, and so on.
    """
    order = np.lexsort((-again.distance, again.row))
    row, size = again.row[order], again.size[order]
    total = np.cumsum(size)
    before = (total - size)[np.searchsorted(row, row)]  # what the rows ahead read
    level, rate = _level(curve, again.distance[order])
    time = np.minimum(total - before, of.read[row]) / rate * 1e9
    longest = np.argsort(time, kind="stable")  # of several of a row the last one stays
    result, place = np.zeros(len(of.time)), np.zeros(len(of.time), np.int64)
    result[row[longest]], place[row[longest]] = time[longest], level[longest]
    return result, place


def _by_l2(of: Bytes, again: Uses, ceilings: Ceilings, in_place: bool, capacity: float) -> MemoryRoof:
    """By L2 where the distinct bytes fit it, else by main memory, which L2 may have spared a part; and by main memory
    where what a row reads again does not fit L2 with what is read in between."""
    curve = ceilings.envelope(in_place)
    inside, main = [point for point in curve if point[0] <= capacity], curve[-1]
    level, rate = _level(inside, of.distinct)
    best = inside[0][1] if inside else np.inf
    fits = (of.distinct <= capacity) & ~of.counted & bool(inside)
    level, rate = np.where(of.counted, 0, level), np.where(of.counted, best, rate)
    in_l2, in_main, at_best = of.minimal / rate * 1e9, of.moved / main[1] * 1e9, of.minimal / best * 1e9
    not_held = np.maximum(of.read - capacity, 0.0) + np.maximum(of.written - capacity, 0.0)
    least = np.where(fits, at_best, np.fmax(not_held / main[1] * 1e9, at_best))
    beyond = np.nextafter(capacity, np.inf)
    farther, _ = _farther(of, again, [(0.0, np.inf), (beyond, ceilings.dram_bandwidth)])
    far = fits & (farther > in_l2)
    fits &= ~far
    roof = np.where(far, farther, np.where(fits, in_l2, in_main))
    helped = ~of.counted & (roof > (1 + TOLERANCE) * of.time)
    roof = np.where(helped, np.fmin(np.maximum(of.time, least), roof), roof)
    by_l2 = fits | (of.counted & (in_l2 > in_main))
    roof = np.where(by_l2 & of.counted, in_l2, roof)
    of_l2, main_text = _texts(inside, ceilings, in_place), _text(main, ceilings, in_place)
    texts = [*of_l2, main_text, *(f"{text}; {MORE}" for text in of_l2), f"{main_text}; {PART}"]
    text = np.where(by_l2, level, len(inside)) + np.where(helped, len(inside) + 1, 0)
    text = np.where(far & ~helped, len(texts), text)
    texts.append(f"{_text(ceilings.envelope()[-1], ceilings, in_place=False)}; {BETWEEN}")
    return MemoryRoof(roof, by_l2, helped, text, texts)


def _level(curve: list[tuple[float, float]], distinct: Reals) -> tuple[Integers, Reals]:
    """The index in `curve` of the next smaller measured size of each row, and its rate; infinite without a curve."""
    if not curve:
        return np.zeros(len(distinct), np.int64), np.full(len(distinct), np.inf)
    sizes, rates = np.array([s for s, _ in curve]), np.array([r for _, r in curve])
    level = np.clip(np.searchsorted(sizes, np.nan_to_num(distinct), side="right") - 1, 0, None)
    return level, rates[level]


def _texts(curve: list[tuple[float, float]], ceilings: Ceilings, in_place: bool) -> list[str]:
    return [_text(point, ceilings, in_place) for point in curve]


def _text(point: tuple[float, float], ceilings: Ceilings, in_place: bool) -> str:
    size, rate = point
    return _named(ceilings.bandwidth_for(size, in_place), rate)


def _named(ceiling: Ceiling | None, rate: float) -> str:
    return f"{ceiling.name if ceiling else 'bandwidth'}, {units.text(rate, 'B/s')}"


def _in_place(frame: pd.DataFrame) -> Booleans:
    """By PyTorch's convention an operator in place ends in _; a copy or a fill overwrites what it does not read. An
    optimizer's kernels update parameters and state in place, whatever they are called."""
    overwrites = frame["family"].isin(("copy", "fill", "random")).to_numpy(bool)
    optimizer = (frame["family"] == "optimizer").to_numpy(bool)
    in_place: Booleans = matching(frame["name"], lambda name: name.endswith("_")) & ~overwrites | optimizer
    return in_place
