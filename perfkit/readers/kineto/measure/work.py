"""The work of GPU activities, from the operators that launched them.

An operator's FLOP and bytes belong to it as a whole; each activity gets its part by these rules:

1. An activity belongs to the innermost operator of known cost around its launch.
2. The operator's activities with the name that takes the most time carry its cost (kernels before copies and
   fills; a kernel that only prepares or collects, such as split-K's reduction, comes last). Where that name was
   launched several times (a list of tensors in chunks) each launch gets a part by its thread blocks, else by its time.
3. An operator of several kernels that share its work (`CostModel.parts`) is divided over them: by their names, and
   what no name claims goes to the others that take the most time. With too few of them rule 2 holds. What many
   kernels of any number do together (a recurrent layer's products) is divided by their time.
4. The others help: they add no FLOP and no bytes to the operator's minimum. So they have 0 of both, origin "derived".
5. Copies within a device and fills that no operator's cost covers move what the trace says, origin "counter". Copies
   between host and device have no bytes here, for no ceiling of the device bounds them; the facts hold them.
6. A product of fp32 operators runs on the units of its kernel's name, whatever the program's setting: cuDNN
   takes TF32 for convolutions where products of matrices are in fp32.
7. What a CUDA graph replays has no operator around it: the calls of a compiled graph take the place of operators, by
the same rules; all else has no known work. Nor have collectives, which links bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfkit.columns import Booleans, Coded, Integers
from perfkit.numbers import unique
from perfkit.readers.kernel_names import TF32
from perfkit.readers.kineto.attribution.gpu_steps import Launches
from perfkit.readers.kineto.decode.events import COPY, FILL, KERNEL, DeviceEvents, HostEvents
from perfkit.readers.kineto.measure.collectives import collectives
from perfkit.readers.kineto.measure.rows import HostRows, costed, shapes_of
from perfkit.table import FLOP_COLUMNS, ORIGINS

COUNTER, DERIVED, MODEL, ABSENT = range(len(ORIGINS))

# In lower case; words are found many times faster than patterns.
_HELPERS = (
    "splitkreduce", "split_kreduce", "splitk_reduce", "split_k_reduce", "cublaslt::epilogue", "scal_kernel",
    "nchwtonhwc", "nhwctonchw", "transposereadwrite", "offsetskernel", "reduce_wgrad",
    # MIOpen turns layouts, unfolds windows and fills results around the kernel that convolves.
    "batched_transpose", "transpose_nchw2cnhw", "transpose_cnhw2nchw", "im2d2col", "im3d2col", "col2im", "subtensorop",
)  # fmt: skip
_NOTABLE = 0.1  # of the time of an operator's longest kernel: one that takes less does none of its main work
_FP32 = re.compile(r"f32f32_f32f32|simt_sgemm", re.IGNORECASE)
_WITHIN = re.compile(r"DtoD|Device -> Device|PtoP", re.IGNORECASE)
_BETWEEN = re.compile(r"HtoD|DtoH|HtoH|Host|Pageable|Pinned", re.IGNORECASE)


def work_columns(
    host: HostEvents, device: DeviceEvents, rows: HostRows, launches: Launches, replayed: Integers
) -> dict[str, Any]:
    """Shapes, FLOP, bytes and their origins of every activity; absent where nothing is known.

    `replayed` has the rows that do the work of replayed activities, −1 for none; they come after those of host events.
    """
    launch = np.where(launches.replayed, -1, launches.call)
    owner = owners(host, rows, np.where(collectives(device), -1, launch))
    owner = np.where(replayed >= 0, replayed, owner)
    share = shares(device, owner, rows)
    main = share > 0
    result = costed(rows, np.where(main, owner, -1))
    _named_units(result, device)
    result["shapes"] = _shapes(host, rows, owner, launch)
    for name in [*FLOP_COLUMNS, "bytes_read", "bytes_written"]:
        if name in result:
            result[name] = result[name] * np.where(main, share, np.nan)
    _helpers(result, (owner >= 0) & ~main)
    _moved(result, device, owner, main)
    return result


def owners(host: HostEvents, rows: HostRows, launch: Integers) -> Integers:
    """The innermost operator of known cost around each launch, or −1."""
    if not len(host):
        return np.full(len(launch), -1, np.int64)
    of_kind = np.array([k.cost is not None for k in rows.kinds] + [False], dtype=bool)
    around = host.nearest(of_kind[rows.kind[: len(host)]])
    return np.where(launch >= 0, around[np.maximum(launch, 0)], -1)


def shares(device: DeviceEvents, owner: Integers, rows: HostRows) -> Any:
    """The part of its owner's cost that each activity carries: 0 for helpers and for what has no owner."""
    share = np.zeros(len(device))
    mine = np.flatnonzero(owner >= 0)
    if not len(mine):
        return share
    time = (device.end - device.start)[mine].astype(float)
    # One number for each pair of owner and name; the first pair is the owner's.
    pairs, pair = np.unique(owner[mine].astype(np.int64) * len(device.names) + device.name[mine], return_inverse=True)
    total = np.bincount(pair, weights=time, minlength=len(pairs))
    rank = _ranks(device)
    of_pair = np.zeros(len(pairs), np.int64)
    of_pair[pair] = rank[device.name[mine]] - 2 * (device.kind[mine] != KERNEL)
    pair_owner = pairs // len(device.names)
    order = np.lexsort((total, of_pair, pair_owner))
    leads = np.append(pair_owner[order][1:] != pair_owner[order][:-1], True)
    carried = np.zeros(len(pairs))
    carried[order[leads]] = 1.0
    _divide(carried, rows, pair_owner, [device.names[n] for n in pairs % len(device.names)], total, of_pair > 0)
    main = carried[pair] > 0
    share[mine[main]] = carried[pair[main]] * _parts(device, mine[main], pair[main], time[main])
    return share


def _divide(carried: Any, rows: HostRows, owner: Integers, names: Sequence[str], time: Any, works: Booleans) -> None:
    """Divide the cost of owners with parts: of each pair of owner and name `carried` has the part that it carries."""
    kind = rows.kind[owner]
    for number in (n for n, one in enumerate(rows.kinds) if one.parts):
        of_kind = np.flatnonzero(kind == number)
        for one in unique(owner[of_kind]):
            mine = of_kind[owner[of_kind] == one]
            parts, working = rows.kinds[number].parts, mine[works[mine]]
            by_time = [int(i) for i in working[np.argsort(-time[working], kind="stable")]]
            if found := _of_all(parts, by_time, names, time) or _claimed(parts, by_time, names, time):
                carried[mine] = 0.0
                carried[list(found)] = list(found.values())


def _of_all(parts: Mapping[str, float], kernels: Sequence[int], names: Sequence[str], time: Any) -> dict[int, float]:
    """A whole, which goes to all kernels whose name fits, by their time; empty if there are parts."""
    if [*parts.values()] != [1.0]:
        return {}
    those = [i for i in kernels if re.search(next(iter(parts)), names[i], re.IGNORECASE)]
    return {i: float(time[i] / time[those].sum()) for i in those}


def _claimed(parts: Mapping[str, float], kernels: Sequence[int], names: Sequence[str], time: Any) -> dict[int, float]:
    """Each kernel's part: of those whose name fits the longest, then the longest of the others; empty if too few."""
    notable = [i for i in kernels if time[i] >= _NOTABLE * time[kernels[0]]]
    fits = {pattern: [i for i in notable if re.search(pattern, names[i], re.IGNORECASE)] for pattern in parts}
    found = {those[0]: parts[pattern] for pattern, those in fits.items() if those}
    claimed = {i for those in fits.values() for i in those}
    others = [i for i in notable if i not in claimed and "reduce" not in names[i].lower()]  # a bias's gradient is a sum
    open_parts = [parts[pattern] for pattern, those in fits.items() if not those]
    if len(open_parts) > len(others):
        return {}
    return found | dict(zip(others, open_parts, strict=False))


def _named_units(result: dict[str, Any], device: DeviceEvents) -> None:
    """Move the FLOP of fp32 products to the unit of their kernel's name."""
    full, tf32 = "flop_matrix_fp32", "flop_matrix_tf32"
    for source, target, said in ((full, tf32, TF32), (tf32, full, _FP32)):
        if source in result:
            named = np.array([bool(said.search(name[:400])) for name in device.names], dtype=bool)
            moved = named[device.name] & ~np.isnan(result[source])
            if moved.any():
                before = result.get(target, np.full(len(moved), np.nan))
                result[target] = np.where(moved, result[source], before)
                result[source] = np.where(moved, np.nan, result[source])


def _ranks(device: DeviceEvents) -> Integers:
    """By name: 1 for what may do an operator's work, 0 for kernels that only help."""
    names = [n[:400].lower() for n in device.names]
    return np.array([0 if any(word in n for word in _HELPERS) else 1 for n in names], dtype=np.int64)


def _parts(device: DeviceEvents, chosen: Integers, pair: Integers, time: Any) -> Any:
    """Parts that add up to 1 over the launches of each pair: by blocks where all are known, else by time."""
    grid = np.array([s.grid for s in device.shapes], dtype=float).reshape(-1, 3)
    blocks = np.where((grid > 0).all(axis=1), grid.prod(axis=1), np.nan)[device.shape[chosen]]
    count = int(pair.max()) + 1
    known = np.bincount(pair, weights=np.isnan(blocks), minlength=count)[pair] == 0
    timed = np.bincount(pair, weights=time, minlength=count)[pair] > 0
    weight = np.where(known, blocks, np.where(timed, time, 1.0))
    return weight / np.bincount(pair, weights=weight, minlength=count)[pair]


def _shapes(host: HostEvents, rows: HostRows, owner: Integers, launch: Integers) -> Coded:
    """Shapes of the owner; without one those of the innermost operator that works."""
    if not len(host):
        return shapes_of(rows, owner)
    working = host.nearest(rows.kind[: len(host)] >= 0)
    inner = np.where(launch >= 0, working[np.maximum(launch, 0)], -1)
    event = np.where(owner >= 0, owner, inner)
    return shapes_of(rows, np.where(event >= 0, rows.kind[np.maximum(event, 0)], -1))


def _helpers(result: dict[str, Any], helps: Booleans) -> None:
    """Give helpers 0, and say where the numbers come from."""
    flops = [name for name in FLOP_COLUMNS if name in result]
    unit = flops[0] if flops else FLOP_COLUMNS[1]
    result.setdefault(unit, np.full(len(helps), np.nan))
    for name in (unit, "bytes_read", "bytes_written"):
        result[name] = np.where(helps, 0.0, result[name])
    known = np.any([~np.isnan(result[name]) for name in [*flops, unit]], axis=0)
    result["flop_origin"] = _origin(helps, known)
    known = ~np.isnan(result["bytes_read"]) | ~np.isnan(result["bytes_written"])
    result["bytes_origin"] = _origin(helps, known)


def _origin(helps: Booleans, known: Booleans) -> Coded:
    return Coded(list(ORIGINS), np.where(helps, DERIVED, np.where(known, MODEL, ABSENT)).astype(np.int8))


def _said(origin: Coded, where: Booleans, code: int) -> Coded:
    """The same origins, but `code` at some places."""
    return Coded(origin.words, np.where(where, np.int8(code), origin.code))


def _moved(result: dict[str, Any], device: DeviceEvents, owner: Integers, main: Booleans) -> None:
    """Copies and fills by what the trace says that they move. They compute nothing."""
    own = ((device.kind == COPY) | (device.kind == FILL)) & ((owner < 0) | main)
    fill = own & (device.kind == FILL)
    within = own & (device.kind == COPY) & _copies_within(device)
    amount = np.where(device.amount >= 0, device.amount, np.nan)
    written = np.where(fill | within, amount, np.nan)
    stated = ~np.isnan(written)
    between = own & (device.kind == COPY) & ~within
    read = np.where(fill, 0.0, written)
    for name, values in (("bytes_read", read), ("bytes_written", written)):
        result[name] = np.where(stated, values, np.where(between, np.nan, result[name]))
    result["bytes_origin"] = _said(_said(result["bytes_origin"], between, ABSENT), stated, COUNTER)
    flops = [name for name in FLOP_COLUMNS if name in result]
    free = own & np.all([np.isnan(result[name]) for name in flops], axis=0)
    result[flops[0]] = np.where(free, 0.0, result[flops[0]])
    result["flop_origin"] = _said(result["flop_origin"], free, DERIVED)


def _copies_within(device: DeviceEvents) -> Booleans:
    """Return whether each activity, where it is a copy, has both ends on a device."""
    flags = np.zeros(len(device.names), bool)
    for code in unique(device.name[device.kind == COPY]).tolist():
        name = device.names[code][:400]
        flags[code] = bool(_WITHIN.search(name)) and not _BETWEEN.search(name)
    return flags[device.name]
