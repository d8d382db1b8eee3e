"""The ranks that train a model together, as one of them sees the others.

`join` makes the process group of the environment that torchrun gives its processes (RANK, LOCAL_RANK, WORLD_SIZE, …).
Collectives of a process alone do nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from perfkit.errors import RunFailed
from perfkit.run_folder import Settings

if TYPE_CHECKING:
    import torch

# Seconds for which a rank waits for the others in a collective: one may still compile when the others have done.
TIMEOUT = float(os.environ.get("PERFKIT_RANKS_TIMEOUT", "600"))


@dataclass(frozen=True)
class Ranks:
    """This process as number `rank` of `size`."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    def own(self, settings: Settings) -> Settings:
        """`settings` on this rank's device."""
        return msgspec.structs.replace(settings, device=self.device)

    def meet(self) -> None:
        """Wait until every rank is here, and its device has nothing left to do."""
        if self.size > 1:
            self._reduced(0.0, "SUM")

    def mean(self, value: float) -> float:
        """The mean of every rank's `value`."""
        return self._reduced(value, "SUM") / self.size if self.size > 1 else value

    def most(self, value: float) -> float:
        """The largest of every rank's `value`."""
        return self._reduced(value, "MAX") if self.size > 1 else value

    def _reduced(self, value: float, how: str) -> float:
        import torch
        from torch import distributed

        number = torch.tensor([value], dtype=torch.float64, device=self.device)
        distributed.all_reduce(number, op=getattr(distributed.ReduceOp, how))
        return float(number)


def join(settings: Settings) -> Ranks:
    """Become a rank of the process group that `settings` ask for: NCCL between GPUs, gloo between CPUs.

    Raises `RunFailed` in a process that torchrun did not start as one of so many.
    """
    if not settings.in_group:
        return Ranks(device=settings.device)
    import torch
    from torch import distributed

    if int(os.environ.get("WORLD_SIZE", "1")) != settings.ranks:
        raise RunFailed(f"This process is not one of {settings.ranks} ranks.", "Start it by torchrun.")
    more: dict[str, Any] = {}
    device = "cpu"
    if settings.device != "cpu":
        device = f"cuda:{int(os.environ['LOCAL_RANK'])}"
        torch.cuda.set_device(device)
        more["device_id"] = torch.device(device)  # connects at once, and names the GPU of every collective
    distributed.init_process_group(carrier(settings), timeout=timedelta(seconds=TIMEOUT), **more)
    return Ranks(distributed.get_rank(), distributed.get_world_size(), device)


def carrier(settings: Settings) -> str:
    """The library that carries the collectives."""
    return "gloo" if settings.device == "cpu" else "nccl"


def reduce_scatter(out: torch.Tensor, whole: torch.Tensor) -> Any:
    """Begin to add up every rank's `whole` (n · K), of which `out` (K) gets this rank's part; returns what waits."""
    from torch import distributed

    begin = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
    return begin(out, whole, async_op=True)


def all_gather(whole: torch.Tensor, own: torch.Tensor) -> Any:
    """Begin to put every rank's `own` (K) one after the other into `whole` (n · K); returns what waits."""
    from torch import distributed

    begin = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    return begin(whole, own, async_op=True)
