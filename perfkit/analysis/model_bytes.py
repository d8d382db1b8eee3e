"""Bytes of weights and of cached keys and values that kernels read, by their shapes, and the least time of products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.analysis import tensors
from perfkit.analysis.roofline.roof import Reals
from perfkit.hardware.ceilings import Ceilings

if TYPE_CHECKING:
    import pandas as pd

_MATRIX = "flop_matrix_"
_KNOWN = 0.99  # of the time of products, or of attention: less leaves the bytes unknown


def weight_bytes(frame: pd.DataFrame) -> Reals | None:
    """Return for each row the bytes of weights that it reads, the second matrix of a product.

    None where that is not known of nearly all products, such as batched ones, whose second matrix may be no weight.
    """
    return _operands(frame, "matmul", _weight)


def cache_bytes(frame: pd.DataFrame) -> Reals | None:
    """Return for each row the bytes of keys and values that its attention reads; None where that is not known."""
    return _operands(frame, "attention", _keys_and_values)


def _weight(shapes: str) -> float | None:
    found = tensors.shapes(shapes)
    matrices = [size for (_, shape), size in zip(found, tensors.sizes(shapes), strict=True) if len(shape) == 2]
    return float(matrices[1]) if len(matrices) == 2 and all(len(shape) <= 2 for _, shape in found) else None


def _keys_and_values(shapes: str) -> float | None:
    found, sizes = tensors.shapes(shapes), tensors.sizes(shapes)
    fit = len(found) >= 3 and len(found[1][1]) >= 3 and found[1][1][:-1] == found[2][1][:-1]
    return float(sizes[1] + sizes[2]) if fit else None


def _operands(frame: pd.DataFrame, family: str, operand: Any) -> Reals | None:
    """The bytes of an operand of the rows of a family. Each row of a call by several kernels has its part of them; one
    without bytes of its own helps another."""
    amounts, unknown, whole = np.zeros(len(frame)), 0.0, 0.0
    columns = (frame[name].to_numpy(object) for name in ("family", "shapes", "bytes_read", "duration_ns"))
    for at, (kind, shapes, read, time) in enumerate(zip(*columns, strict=True)):
        if kind != family:
            continue
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
