"""Theoretical occupancy and waves of kernels, from their launch and what the capture says of the GPU.

Blocks that fit on a multiprocessor are the least of what each resource allows (CUDA's occupancy calculator, "Compute
Capabilities" of the CUDA C++ Programming Guide for the units of allocation):

    warps:      most warps / warps of a block
    registers:  a warp gets registers · 32 rounded up to 256, warps come four at a time
    shared:     what the launch was given, else what the multiprocessor has, / shared memory of a block and 1 KB that
                the driver takes from compute capability 8.0 on, rounded up to 128 bytes (256 before 8.0)
    blocks:     most blocks

occupancy = blocks · warps of a block / most warps;  waves = blocks of the grid / (multiprocessors · blocks)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.readers.nsys.activity import KERNEL, Activity
from perfkit.readers.nsys.database import ABSENT, Database, Integers

GPUS = "TARGET_INFO_GPU"
_REGISTER_UNIT, _WARP, _WARPS_AT_ONCE = 256, 32, 4
_LIMITS = ("maxWarpsPerSm", "maxBlocksPerSm", "maxRegistersPerSm", "maxShmemPerSm", "smCount", "computeMajor")
_LARGEST = 2**40  # beyond it no limit and no launch can be

Reals = npt.NDArray[np.float64]


def read_limits(database: Database) -> dict[int, dict[str, int]]:
    """The limits of each GPU by the number that kernels give it; GPUs that do not state all of them are left out."""
    raw = database.integers(GPUS, ("id", "cuDevice", *_LIMITS))
    number = np.where(raw["cuDevice"] == ABSENT, raw["id"], raw["cuDevice"])
    found = {}
    for i, device in enumerate(number.tolist()):
        limits = {name: int(raw[name][i]) for name in _LIMITS}
        if all(0 < value < _LARGEST for value in limits.values()):
            found[device] = limits
    return found


def columns(activity: Activity, limits: dict[int, dict[str, int]]) -> dict[str, Reals]:
    """Columns occupancy (0 to 1) and waves of the table, NaN where something is unknown."""
    occupancy, waves = (np.full(len(activity), np.nan) for _ in range(2))
    for device, gpu in limits.items():
        mine = activity.of(KERNEL) & (activity.device == device) & _sane(activity)
        if mine.any():
            occupancy[mine], waves[mine] = _of_gpu({k: v[mine] for k, v in _launch(activity).items()}, gpu)
    return {"occupancy": occupancy, "waves": waves}


def _launch(activity: Activity) -> dict[str, Integers]:
    return {**activity.launch, "shared_given": activity.shared_given}


def _sane(activity: Activity) -> Any:
    names = [n for n in activity.launch if n != "shared_bytes"]
    good = (activity.launch["shared_bytes"] >= 0) & (activity.launch["shared_bytes"] < _LARGEST)
    for name in names:
        good &= (activity.launch[name] > 0) & (activity.launch[name] < 2**31)
    return good


def _of_gpu(launch: dict[str, Integers], gpu: dict[str, int]) -> tuple[Reals, Reals]:
    threads = np.prod([launch[f"block_{axis}"].astype(float) for axis in "xyz"], axis=0)
    blocks_of_grid = np.prod([launch[f"grid_{axis}"].astype(float) for axis in "xyz"], axis=0)
    warps = np.ceil(threads / _WARP)
    fit = np.minimum(gpu["maxWarpsPerSm"] // warps, gpu["maxBlocksPerSm"])
    of_warp = np.ceil(launch["registers"] * _WARP / _REGISTER_UNIT) * _REGISTER_UNIT
    fit = np.minimum(fit, gpu["maxRegistersPerSm"] // of_warp // _WARPS_AT_ONCE * _WARPS_AT_ONCE // warps)
    fit = np.minimum(fit, _by_shared(launch, gpu))
    with np.errstate(divide="ignore", invalid="ignore"):
        occupancy = np.where(fit > 0, fit * warps / gpu["maxWarpsPerSm"], np.nan)
        waves = np.where(fit > 0, blocks_of_grid / (gpu["smCount"] * fit), np.nan)
    return occupancy, waves


def _by_shared(launch: dict[str, Integers], gpu: dict[str, int]) -> Reals:
    modern = gpu["computeMajor"] >= 8
    unit = 128 if modern else 256
    needed = np.ceil((launch["shared_bytes"] + (1024 if modern else 0)) / unit) * unit
    given = launch["shared_given"]
    room = np.where((given > 0) & (given < _LARGEST), given, gpu["maxShmemPerSm"])
    with np.errstate(divide="ignore"):
        return np.where(needed > 0, room // np.maximum(needed, 1), np.inf)
