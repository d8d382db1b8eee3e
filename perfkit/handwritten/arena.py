"""Tensors by name in one allocation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from perfkit.kernels.memory import advise_huge_pages

_ALIGNMENT = 64  # bytes: a cache line, a vector of AVX-512, four of a GPU's 16-byte accesses


class Arena:
    """Tensors by name in one allocation, each on a boundary of 64 bytes, all zero at first.

    `flat` (N) is the whole, gaps included. One arena has one precision: give its `dtype`, and the `shapes` by name. At
    each name in `begins` a part begins, and every part is long enough for `ranks` equal ones that begin as tensors do.
    """

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        dtype: torch.dtype,
        device: str | torch.device,
        begins: Collection[str] = (),
        ranks: int = 1,
    ) -> None:
        step = _ALIGNMENT // dtype.itemsize
        offsets, end, start = {}, 0, 0
        for name, shape in shapes.items():
            if name in begins:
                start = end = start + _up(end - start, step * ranks)
            offsets[name] = end
            end += _up(math.prod(shape), step)
        end = start + _up(end - start, step * ranks)
        starts = [offsets[name] for name in shapes if name in begins]
        self.parts = [slice(*pair) for pair in itertools.pairwise([*starts, end])]
        self.flat = torch.zeros(end, dtype=dtype, device=device)
        if self.flat.device.type == "cpu":
            advise_huge_pages(self.flat)
        self._views = {
            name: self.flat[offsets[name] : offsets[name] + math.prod(shape)].view(tuple(shape))
            for name, shape in shapes.items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return self._views[name]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors by name."""
        return self._views


def _up(count: int, step: int) -> int:
    """`count` rounded up to a multiple of `step`."""
    return -(-count // step) * step
