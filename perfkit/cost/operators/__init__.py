"""Every operator that perfkit knows, from the files of this folder: one a family."""

from __future__ import annotations

from perfkit.cost.operators import (
    attention,
    convolution,
    elementwise,
    embedding,
    fourier,
    index,
    linalg,
    loss,
    matmul,
    movement,
    normalization,
    optimizer,
    quantized,
    recurrent,
    reduction,
    sampling,
    structure,
)
from perfkit.cost.registry import Operator

_ROOMS = (
    matmul, quantized, recurrent, attention, convolution, normalization, elementwise, reduction, embedding, loss,
    optimizer, movement, sampling, fourier, linalg, index, structure,
)  # fmt: skip


def _gather() -> dict[str, Operator]:
    found: dict[str, Operator] = {}
    for room in _ROOMS:
        for operator in room.operators():
            if operator.name in found:
                raise ValueError(f"{operator.name} is listed twice")
            found[operator.name] = operator
    return found


OPERATORS: dict[str, Operator] = _gather()
