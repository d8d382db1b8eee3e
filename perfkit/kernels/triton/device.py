"""Properties of the device that a launch needs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_INTERPRETED = (
    4  # programs run one after another under the interpreter; more than one, so that sums of parts are tested
)


def multiprocessors(tensor: Tensor) -> int:
    """Return the number of multiprocessors of the tensor's GPU; 4 under the interpreter."""
    return _count(tensor.device) if tensor.is_cuda else _INTERPRETED


@functools.cache
def _count(device: torch.device) -> int:
    import torch

    return torch.cuda.get_device_properties(device).multi_processor_count
