"""Fully sharded: every rank holds a part of each parameter, of its gradient and of the optimizer's state (FSDP2).

The workload's repeated blocks are the units: a unit's parameters are gathered before it runs, and dropped after.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from perfkit.backends.parallel.interface import Parallel

if TYPE_CHECKING:
    import torch

    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Workload


class Fsdp(Parallel):
    """PyTorch's `fully_shard`. Gradients of bf16 are added up in fp32."""

    name = "fsdp"

    def wrapped(self, workload: Workload, settings: Settings) -> Callable[..., Any]:
        """Each layer is sharded for itself, then the rest of the model; in bf16 gradients are summed in fp32."""
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(settings.device.split(":")[0], (settings.ranks,))
        mixed = settings.dtype == "bf16"
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
        for path, module in self.model.named_modules():
            if workload.layers and fnmatch.fnmatchcase(path, workload.layers) and _depth(path, workload.layers):
                fully_shard(module, mesh=mesh, mp_policy=policy)
        self._sharded: Any = fully_shard(self.model, mesh=mesh, mp_policy=policy)
        return self.model

    @contextlib.contextmanager
    def batch(self, last: bool) -> Iterator[None]:
        """Gradients are exchanged in the last batch of a step only."""
        self._sharded.set_requires_gradient_sync(last)
        yield

    def whole(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors in full, gathered from all ranks."""
        return {name: tensor.detach().full_tensor() for name, tensor in tensors.items()}  # type: ignore[attr-defined]


def _depth(path: str, pattern: str) -> bool:
    """Return whether the module is a block itself and not a part of one: * matches dots too."""
    return path.count(".") == pattern.count(".")
