"""What FSDP2 costs the host, however small the messages: hooks of a unit, and updates of sharded parameters.

Measured on a small model in which the host is the slower one: the same step with `fully_shard` and without.
"""

from __future__ import annotations

import copy
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BLOCKS, WIDTH, ROWS = 6, 64, 8  # small enough that kernels are no part of the time; 12 parameters a block, as GPT-2's
_WARMUP, _TIMED = 4, 21


@dataclass(frozen=True)
class _Times:
    passes: float
    optimizer: float


def observe(device: torch.device) -> dict[str, float] | None:
    """Seconds that a unit and a parameter cost more in a step, on this rank.

    A unit's small collectives are in it, and that ranks meet in them: on a CPU a unit waits no less. All ranks must
    call it. None where this torch has no `fully_shard`.
    """
    import torch
    from torch import distributed

    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return None
    torch.manual_seed(0)
    plain = torch.nn.Sequential(*(_block() for _ in range(BLOCKS)), torch.nn.Linear(WIDTH, WIDTH)).to(device)
    sharded = copy.deepcopy(plain)
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    for block in list(sharded)[:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    count = sum(1 for _ in plain.parameters())
    whole, parts = _Trained(plain, device), _Trained(sharded, device)
    for _ in range(_WARMUP + _TIMED):  # one after the other: what disturbs the machine meets both
        whole.step()
        parts.step()
    alone, together = whole.times(), parts.times()
    return {
        "unit_s": max(together.passes - alone.passes, 0.0) / (BLOCKS + 1),
        "parameter_s": max(together.optimizer - alone.optimizer, 0.0) / count,
    }


def _block() -> torch.nn.Module:
    from torch.nn import GELU, LayerNorm, Linear, Sequential

    wide = 4 * WIDTH
    return Sequential(LayerNorm(WIDTH), Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH), LayerNorm(WIDTH),
                      Linear(WIDTH, wide), GELU(), Linear(wide, WIDTH))  # fmt: skip


class _Trained:
    """A model in training: the seconds of its passes, and of its optimizer, step by step."""

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        import torch

        self._model, self._device = model, device
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self._input = torch.randn(ROWS, WIDTH, device=device)
        self._passes: list[float] = []
        self._updates: list[float] = []

    def step(self) -> None:
        """One training step, timed by the clock once all ranks are here."""
        from torch import distributed

        distributed.barrier()
        began = self._now()
        loss: Any = self._model(self._input).square().mean()
        loss.backward()
        middle = self._now()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._passes.append(middle - began)
        self._updates.append(self._now() - middle)

    def times(self) -> _Times:
        """The medians of the timed steps: what is foretold is a median step too."""
        return _Times(statistics.median(self._passes[_WARMUP:]), statistics.median(self._updates[_WARMUP:]))

    def _now(self) -> float:
        import torch

        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
