"""Thunder's own ways: collectives are symbols of the trace, which Thunder sorts so that they overlap computation.

`thunder.distributed.ddp` and `fsdp` change the compiled module: it has parameters of its own, which the optimizer
steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from perfkit.backends.parallel.interface import Parallel
from perfkit.backends.parallel.ranks import all_gather

if TYPE_CHECKING:
    import torch

    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Workload


class TracedDdp(Parallel):
    """`thunder.distributed.ddp`: every rank has the whole model; gradients are averaged in buckets of 25 MB."""

    name = "ddp"

    def wrapped(self, workload: Workload, settings: Settings) -> Callable[..., Any]:
        """Return the model under Thunder's own transform for DDP."""
        import thunder.distributed

        self.model = thunder.distributed.ddp(self.model)
        return self.model

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged in the last batch of a step only."""
        found: AbstractContextManager[None] = contextlib.nullcontext() if last else self.model.no_sync()  # type: ignore[operator]
        return found


class TracedFsdp(TracedDdp):
    """`thunder.distributed.fsdp`: each rank holds a slice of the first dimension of every parameter (ZeRO stage 2)."""

    name = "fsdp"

    def wrapped(self, workload: Workload, settings: Settings) -> Callable[..., Any]:
        """Return the model under Thunder's own transform for FSDP."""
        import thunder.distributed
        import torch

        self._ranks = settings.ranks
        self._rows = {name: p.shape[0] for name, p in self.model.named_parameters()}  # the last slice may be padded
        self.model = thunder.distributed.fsdp(self.model, device=torch.device(settings.device))
        return self.model

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged in the last batch of a step only."""
        return (
            contextlib.nullcontext()
        )  # every batch's gradients are exchanged: Thunder 0.2.6 adds them up wrongly else

    def whole(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors in full, gathered from all ranks."""
        return {name: self._whole(tensor.detach(), self._rows[name]) for name, tensor in tensors.items()}

    def _whole(self, part: torch.Tensor, rows: int) -> torch.Tensor:
        part = part.contiguous()
        found = part.new_empty((self._ranks * part.shape[0], *part.shape[1:]))
        all_gather(found, part).wait()
        return found[:rows]


TRACED: dict[str, type[TracedDdp]] = {way.name: way for way in (TracedDdp, TracedFsdp)}
