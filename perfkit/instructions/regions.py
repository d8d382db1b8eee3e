"""Files of `perfkit/profile.cuh`: the regions of the warps of a kernel, read, put on one clock and summed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from perfkit.errors import InputError
from perfkit.intervals import Union

MAGIC = b"PKREGION"
_HEAD = np.dtype([("magic", "S8"), ("version", "u4"), ("bytes", "u4"), ("sms", "u4"), ("zero", "u4"), ("count", "u8")])
_RECORD = np.dtype(
    [("name", "S16"), ("begin_cycle", "u8"), ("end_cycle", "u8"), ("begin_ns", "u8"), ("end_ns", "u8")]
    + [(name, "u4") for name in ("sm", "block", "warp", "launch")]
)  # fmt: skip
_VERSION = 1
NS, CYCLES = "ns", "cycles"
COARSE = 0.02  # of the launch: a tick of the GPU's timer that is longer is said


class Region(msgspec.Struct, kw_only=True):
    """A region of a launch. `warp_ns` is summed over warps; `sm_ns` is how long a multiprocessor has warps in it, on
    average over those that have any, `least_ns` and `most_ns` the range, `most_sm` the one with the most."""

    name: str
    records: int
    warp_ns: float
    share: float  # of the warp time of all regions
    mean_ns: float  # of a record
    sm_ns: float
    least_ns: float
    most_ns: float
    most_sm: int


class Multiprocessor(msgspec.Struct, kw_only=True):
    """A multiprocessor of a launch: its blocks and warps, and from when to when they were in regions, ns."""

    sm: int
    blocks: int
    warps: int
    begin_ns: float
    end_ns: float
    busy_ns: float  # in which any of its warps was in a region


class LongestLaunch(msgspec.Struct, kw_only=True):
    """The longest launch in a file, the regions by warp time, and the multiprocessors, the last to end first.

    Where `unit` is cycles, lengths are cycles, and only the begin of a block is in ns: a span, and when regions end, is
    not known then.
    """

    launches: int  # of the kernel
    multiprocessors: int  # of the GPU; 0 where the file does not say
    lost: int  # records of all launches that the buffer had no room for
    span_ns: float  # from the first region's begin to the last one's end
    tick_ns: float  # of the GPU's timer: the least difference between two of its values here
    regions: list[Region]
    by_sm: list[Multiprocessor]
    kernel: str = ""
    unit: str = NS
    idle_tail: float  # share of the room of the multiprocessors in use, between their last region and the end


@dataclass(frozen=True)
class Records:
    """The records of one launch in columns, on one clock that begins with the first."""

    name: np.ndarray
    sm: np.ndarray
    block: np.ndarray
    warp: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    tick_ns: float


def is_regions(head: bytes) -> bool:
    """Return whether a file that begins with `head` holds regions."""
    return head.startswith(MAGIC)


def read(path: Path) -> tuple[LongestLaunch, Records]:
    """Return the longest launch of a file and its records. Raises `InputError` for a damaged or an empty one."""
    raw = path.read_bytes()
    if len(raw) < _HEAD.itemsize:
        raise _damaged(path)
    head = np.frombuffer(raw, _HEAD, 1)[0]
    if head["version"] != _VERSION or head["bytes"] != _RECORD.itemsize:
        raise InputError(
            f"{path} was written by another version of perfkit/profile.cuh.", "Compile with this perfkit's header."
        )
    if (len(raw) - _HEAD.itemsize) % _RECORD.itemsize:
        raise _damaged(path)
    records = np.frombuffer(raw, _RECORD, offset=_HEAD.itemsize)
    if len(records) > head["count"]:
        raise _damaged(path)
    if not len(records):
        raise InputError(
            f"{path} holds no regions.", "Did the kernel run before perfkit_write_regions, and reach a PERFKIT_END?"
        )
    _check(path, records, int(head["sms"]))
    ids, place = np.unique(records["launch"], return_inverse=True)
    parts = [_on_one_clock(records[place == number]) for number in range(len(ids))]
    longest = max(parts, key=lambda part: float(part.end_ns.max()))
    return launch_of(longest, len(ids), int(head["sms"]), int(head["count"]) - len(records)), longest


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged or incomplete.", "Write it again, and wait until the program has ended.")


def _check(path: Path, records: np.ndarray, multiprocessors: int) -> None:
    """Refuse records that no kernel writes."""
    backwards = (records["end_cycle"] < records["begin_cycle"]) | (records["end_ns"] < records["begin_ns"])
    if backwards.any() or (records["sm"] >= multiprocessors).any() or (records["name"] == b"").any():
        raise _damaged(path)
    try:
        np.char.decode(records["name"], "utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(path) from error


def _on_one_clock(records: np.ndarray) -> Records:
    """The records of a launch in ns.

    A multiprocessor's cycles are exact, the timer that all share ticks coarsely: the cycles give the lengths, and the
    timer their length in ns and what is when.
    """
    sm, first_cycle = records["sm"], np.zeros(int(records["sm"].max()) + 1, np.uint64)
    start_ns = records["begin_ns"].min()
    ns = np.concatenate([records["begin_ns"], records["end_ns"]]).astype(np.uint64)
    ticks = np.diff(np.unique(ns)).astype(float)
    spans = np.zeros((len(first_cycle), 2))
    for multiprocessor in np.unique(sm):
        records_there = records[sm == multiprocessor]
        first_cycle[multiprocessor] = records_there["begin_cycle"].min()
        spans[multiprocessor] = (
            records_there["end_ns"].max() - records_there["begin_ns"].min(),
            records_there["end_cycle"].max() - first_cycle[multiprocessor],
        )
    ns_total, cycles = spans.sum(axis=0)
    rate = ns_total / cycles if cycles and ns_total else np.nan
    begin, end = ((records[f"{which}_cycle"] - first_cycle[sm]).astype(float) * rate for which in ("begin", "end"))
    offset = np.zeros(len(first_cycle))
    for multiprocessor in np.unique(sm):
        offset[multiprocessor] = np.median(
            (records["begin_ns"][sm == multiprocessor] - start_ns).astype(float) - begin[sm == multiprocessor]
        )
    earliest = float((begin + offset[sm]).min())
    return Records(
        name=np.char.decode(records["name"], "utf-8"), sm=sm, block=records["block"], warp=records["warp"],
        begin_ns=begin + offset[sm] - earliest, end_ns=end + offset[sm] - earliest,
        tick_ns=float(ticks.min()) if len(ticks) else float("nan"),
    )  # fmt: skip


def launch_of(
    records: Records, launches: int, multiprocessors: int, lost: int, kernel: str = "", unit: str = NS
) -> LongestLaunch:
    """Sum the records of a launch by region and by multiprocessor."""
    length = records.end_ns - records.begin_ns
    names = list(dict.fromkeys(records.name[np.argsort(-length, kind="stable")].tolist()))
    whole, end = float(length.sum()), float(records.end_ns.max())
    by_sm = sorted((_multiprocessor(records, int(one)) for one in np.unique(records.sm)), key=lambda one: -one.end_ns)
    regions = sorted((_region(records, name, whole) for name in names), key=lambda region: -region.warp_ns)
    idle = float(np.mean([end - one.end_ns for one in by_sm])) / end if end else float("nan")
    return LongestLaunch(
        launches=launches, multiprocessors=multiprocessors, lost=lost, span_ns=end, tick_ns=records.tick_ns,
        regions=regions, by_sm=by_sm, kernel=kernel, unit=unit, idle_tail=idle if unit == NS else float("nan"),
    )  # fmt: skip


def _region(records: Records, name: str, whole: float) -> Region:
    chosen = records.name == name
    begin, end, sm = records.begin_ns[chosen], records.end_ns[chosen], records.sm[chosen]
    used = np.unique(sm)
    busy = [Union(begin[sm == one], end[sm == one]).length for one in used]
    warp_ns = float((end - begin).sum())
    return Region(
        name=name, records=int(chosen.sum()), warp_ns=warp_ns, share=warp_ns / whole if whole else float("nan"),
        mean_ns=warp_ns / int(chosen.sum()), sm_ns=float(np.mean(busy)), least_ns=min(busy), most_ns=max(busy),
        most_sm=int(used[int(np.argmax(busy))]),
    )  # fmt: skip


def _multiprocessor(records: Records, sm: int) -> Multiprocessor:
    chosen = records.sm == sm
    begin, end = records.begin_ns[chosen], records.end_ns[chosen]
    pairs = np.stack([records.block[chosen], records.warp[chosen]], axis=1)
    return Multiprocessor(
        sm=sm, blocks=len(np.unique(pairs[:, 0])), warps=len(np.unique(pairs, axis=0)),
        begin_ns=float(begin.min()), end_ns=float(end.max()), busy_ns=Union(begin, end).length,
    )  # fmt: skip
