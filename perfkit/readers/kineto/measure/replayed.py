"""The work of generated kernels that a CUDA graph replays: no operator is around them, their names tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from perfkit.readers.columns import Booleans, Coded
from perfkit.readers.kineto.decode.events import DeviceEvents
from perfkit.run_folder import DeclaredKernel
from perfkit.table import ORIGINS

MODEL = ORIGINS.index("model")


def add_work(
    columns: dict[str, Any], device: DeviceEvents, replayed: Booleans, declared: Mapping[str, DeclaredKernel]
) -> None:
    """Fill FLOP, bytes and their origins of the `replayed` activities whose names are `declared`, in place."""
    for code, name in enumerate(device.names):
        kernel = declared.get(name)
        mine = replayed & (device.name == code) if kernel is not None else None
        if kernel is None or mine is None or not mine.any():
            continue
        work = {f"flop_{unit}": amount for unit, amount in kernel.flop.items()}
        work |= {"bytes_read": kernel.bytes_read, "bytes_written": kernel.bytes_written}
        for column, amount in work.items():
            before = columns.get(column, np.full(len(mine), np.nan))
            columns[column] = np.where(mine, amount, before)
        for column in ["bytes_origin", *(["flop_origin"] if kernel.flop else [])]:
            origin = columns[column]
            columns[column] = Coded(origin.words, np.where(mine, np.int8(MODEL), origin.code))
