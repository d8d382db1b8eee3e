"""DistributedDataParallel: every rank has the whole model; gradients are averaged in buckets while backward goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from perfkit.backends.parallel.interface import Parallel

if TYPE_CHECKING:
    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Workload


class Ddp(Parallel):
    """PyTorch's `DistributedDataParallel`, whose buckets are the gradients themselves: none is copied."""

    name = "ddp"

    def wrapped(self, workload: Workload, settings: Settings) -> Callable[..., Any]:
        """Return the model in DistributedDataParallel."""
        import torch

        self._reducing = torch.nn.parallel.DistributedDataParallel(
            self.model,
            device_ids=None if settings.device == "cpu" else [settings.device],
            gradient_as_bucket_view=True,
        )
        return self._reducing

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged in the last batch of a step only."""
        return contextlib.nullcontext() if last else self._reducing.no_sync()
