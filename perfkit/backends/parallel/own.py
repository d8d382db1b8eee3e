"""The workload's own way: each rank holds a part of the model that the workload chose, and the rest as by DDP."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from perfkit.backends.parallel.interface import Parallel

if TYPE_CHECKING:
    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Workload


class Own(Parallel):
    """`Workload.shard`, and `DistributedDataParallel` over the parameters that every rank holds."""

    def wrapped(self, workload: Workload, settings: Settings) -> Callable[..., Any]:
        """Share the model in the workload's own way, and exchange what all ranks hold by DDP."""
        import torch
        from torch import distributed

        everything = {name for name, _ in self.model.named_parameters()}
        workload.shard(self.model, distributed.get_rank(), settings.ranks)
        held = {name for name, _ in self.model.named_parameters()}
        self.elsewhere = frozenset(everything - held)
        on_ranks: list[set[str]] = [set() for _ in range(settings.ranks)]
        distributed.all_gather_object(on_ranks, held)
        alone = sorted(name for name in held if not all(name in others for others in on_ranks))
        ways = torch.nn.parallel.DistributedDataParallel
        ways._set_params_and_buffers_to_ignore_for_model(self.model, alone)
        self._reducing = ways(
            self.model,
            device_ids=None if settings.device == "cpu" else [settings.device],
            broadcast_buffers=False,  # those of a part are its own
            gradient_as_bucket_view=True,
        )
        return self._reducing

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged in the last batch of a step only."""
        return contextlib.nullcontext() if last else self._reducing.no_sync()
