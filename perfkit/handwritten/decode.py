"""A token's pass written by hand: what the backend `llmc` decodes with, where a workload brings one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import torch
from torch import Tensor

from perfkit import kernels, ranges
from perfkit.run_folder import Settings

Cache: TypeAlias = Sequence[tuple[Tensor, Tensor]]  # keys and values of each layer, (B, NKV, S, HS)


class RawDecode(ABC):
    """One pass for one new token of each sequence, over the parameters of `model`."""

    def __init__(self, model: torch.nn.Module, settings: Settings) -> None:
        self.parameters = dict(model.named_parameters(remove_duplicate=False))

    def __call__(self, token: Tensor, cache: Cache, position: Tensor) -> tuple[Tensor, Tensor]:
        """From token (B, 1) and position (1), int64: logits (B, 1, V), and the most likely token (B, 1).

        The position's keys and values go to the cache.
        """
        with self._early():
            return self.decode(token, cache, position)

    @abstractmethod
    def decode(self, token: Tensor, cache: Cache, position: Tensor) -> tuple[Tensor, Tensor]:
        """The pass. Its kernels may begin before the ones ahead have ended: these may write no weight, and of a cache
        nothing but the position's own."""

    def _early(self) -> AbstractContextManager[None]:
        """Kernels that overlap have no times of their own: under a profiler they do not."""
        return kernels.overlapping(not ranges.listening())
