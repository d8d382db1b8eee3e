"""Bytes of weights and of cached keys and values that kernels read, by their shapes, and the least time of products.

What runs inside a call of attention is attention's: its products, written out or fused, are of keys and values and of
no weight, and its other kernels, such as the one that turns a mask of booleans into numbers, only help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from perfkit.analysis import tensors
from perfkit.analysis.roofline.roof import Reals
from perfkit.columns import matching
from perfkit.hardware.ceilings import Ceilings

if TYPE_CHECKING:
    import pandas as pd

_MATRIX = "flop_matrix_"
_KNOWN = 0.99  # of the time of products, or of attention: less leaves the bytes unknown
_GENERATED = "triton_"  # Inductor's kernels, which may hold a product without the tensor units
_COLUMNS = ("shapes", "bytes_read", "duration_ns")


def weight_bytes(frame: pd.DataFrame) -> Reals | None:
    """Return for each row the bytes of weights that it reads, the second matrix of a product.

    None where that is not known of nearly all products, such as batched ones, whose second matrix may be no weight.
    """
    return _operands(frame, np.asarray(frame["family"] == "matmul", bool) & ~_attends(frame), _weight)


def cache_bytes(frame: pd.DataFrame) -> Reals | None:
    """Return for each row the bytes of keys and values that its attention reads; None where that is not known.

    Where attention is written out, they are what its products read, after heads were repeated for groups of queries.
    """
    return _operands(frame, _attends(frame) & ~_helps(frame), _keys_and_values)


def _attends(frame: pd.DataFrame) -> np.ndarray:
    """Return the rows inside a call of attention; a multi-head one has weights of its own."""
    called = matching(frame["operator"], lambda name: "attention" in name and "multi_head" not in name)
    return np.asarray(frame["family"] == "attention", bool) | called


def _helps(frame: pd.DataFrame) -> np.ndarray:
    """Return the rows whose work is known and has no product in it; Inductor's kernels are not among them."""
    flop = frame[[name for name in frame.columns if name.startswith("flop_") and name != "flop_origin"]].to_numpy(float)
    product = frame[[name for name in frame.columns if name.startswith(_MATRIX)]].to_numpy(float)
    generated = matching(frame["name"], lambda name: name.startswith(_GENERATED))
    return np.isfinite(flop).any(axis=1) & ~(product > 0).any(axis=1) & ~generated


def _weight(shapes: str) -> float | None:
    found = tensors.shapes(shapes)
    matrices = [size for (_, shape), size in zip(found, tensors.sizes(shapes), strict=True) if len(shape) == 2]
    return float(matrices[1]) if len(matrices) == 2 and all(len(shape) <= 2 for _, shape in found) else None


def _keys_and_values(shapes: str) -> float | None:
    """The bytes of keys and values of one fused call, or of those that a batched product of a written-out one reads."""
    found, sizes = [shape for _, shape in tensors.shapes(shapes)], tensors.sizes(shapes)
    if len(found) >= 3 and len(found[1]) >= 3 and found[1][:-1] == found[2][:-1]:
        return float(sizes[1] + sizes[2])
    if len(found) >= 2 and len(found[-1]) == len(found[-2]) == 3 and found[-2][2] == found[-1][1]:
        return float(sizes[-1])  # aten::bmm, and aten::baddbmm with what it adds before
    return None


def _operands(frame: pd.DataFrame, rows: np.ndarray, operand: Callable[[str], float | None]) -> Reals | None:
    """The bytes of an operand of the `rows`. Each row of a call by several kernels has its part of them; one without
    bytes of its own helps another."""
    amounts, unknown, whole = np.zeros(len(frame)), 0.0, 0.0
    columns = [frame[name].to_numpy(object) for name in _COLUMNS]
    for at in np.flatnonzero(rows).tolist():
        shapes, read, time = (column[at] for column in columns)
        known = operand(shapes) if isinstance(shapes, str) else None
        whole += float(time)
        if known is None or not np.isfinite(read):
            unknown += float(time)
        else:
            amounts[at] = known * min(1.0, read / max(1.0, sum(tensors.sizes(shapes))))
    return amounts if whole and unknown <= (1 - _KNOWN) * whole else None


def product_time(frame: pd.DataFrame, ceilings: Ceilings) -> float:
    """Return the least time of all products of `frame`, in ns."""
    columns = [name for name in frame.columns if name.startswith(_MATRIX)]
    rates = {name: ceilings.compute.get(name.removeprefix("flop_")) for name in columns}
    return sum(float(np.nansum(frame[name])) / rate * 1e9 for name, rate in rates.items() if rate)
