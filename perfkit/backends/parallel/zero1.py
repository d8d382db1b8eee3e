"""The optimizer's state sharded (ZeRO stage 1), like llm.c's: every rank has all parameters and updates its part.

Parameters are in flat buckets, in the order in which their gradients come. A bucket whose gradients are complete is
reduced while backward goes on, each rank getting the mean of its part; the optimizer steps on these parts alone, and
the parameters are gathered again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from perfkit.backends.parallel.interface import Parallel
from perfkit.backends.parallel.ranks import all_gather, reduce_scatter
from perfkit.errors import Unavailable

if TYPE_CHECKING:
    import torch

    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Workload

BUCKET_BYTES = 25 * 2**20  # as DDP's: large enough for the network's bandwidth, small enough to overlap


# Optimizers of PyTorch that treat each element by itself, whatever tensor it is in.
ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")


class ParameterBucket:
    """Some parameters in one flat tensor (n · K), their gradients in another, and this rank's parts (K) of both."""

    def __init__(self, parameters: list[torch.nn.Parameter], rank: int, ranks: int) -> None:
        import torch

        step = 64 // parameters[0].element_size()  # every part and every parameter begins on a cache line
        starts, end = [], 0
        for parameter in parameters:
            starts.append(end)
            end += -(-parameter.numel() // step) * step
        self.size = -(-end // (step * ranks)) * step * ranks
        self.values = torch.zeros(self.size, dtype=parameters[0].dtype, device=parameters[0].device)
        self.gradients = torch.zeros_like(self.values)
        self.places = [slice(start, start + p.numel()) for start, p in zip(starts, parameters, strict=True)]
        for place, parameter in zip(self.places, parameters, strict=True):
            self.values[place].copy_(parameter.detach().reshape(-1))
            parameter.data = self.values[place].view(parameter.shape)
        each = self.size // ranks
        own = slice(rank * each, (rank + 1) * each)
        self.part = torch.nn.Parameter(self.values[own])
        self.part_gradient = torch.zeros_like(self.values[own])
        self.parameters, self.ranks = parameters, ranks
        self.missing = len(parameters)
        self.work: Any = None

    def take(self, index: int) -> None:
        """Move the gradient of parameter `index` into the bucket, as its part of the mean over the ranks."""
        import torch

        parameter = self.parameters[index]
        assert parameter.grad is not None
        torch.mul(parameter.grad.reshape(-1), 1.0 / self.ranks, out=self.gradients[self.places[index]])
        parameter.grad = None
        self.missing -= 1

    def reduce(self) -> None:
        """Begin to add up all ranks' gradients."""
        self.work = reduce_scatter(self.part_gradient, self.gradients)

    def finish(self) -> None:
        """Wait for the sum, and give it to the optimizer."""
        self.work.wait()
        self.part.grad = self.part_gradient
        self.work, self.missing = None, len(self.parameters)

    def gather(self) -> Any:
        """Begin to put together what every rank's optimizer made of its part."""
        return all_gather(self.values, self.part.detach())


class Zero1(Parallel):
    """The workload's own optimizer over this rank's parts of the parameters. Its rule must work element by element."""

    name = "zero1"

    def wrapped(self, workload: Workload, settings: Settings) -> Callable[..., Any]:
        """Return the model as it is: hooks exchange its gradients."""
        self._last = True
        return self.model

    def __init__(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> None:
        import torch
        from torch import distributed

        super().__init__(workload, model, settings)
        if type(self.optimizer).__name__ not in ELEMENTWISE:
            raise Unavailable(
                f"zero1 divides parameters anywhere, and the optimizer of {workload.name} "
                f"({type(self.optimizer).__name__}) may not work element by element.",
                "Choose --parallel ddp or fsdp.",
            )
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._buckets: list[ParameterBucket] = []
        with torch.no_grad():
            for group in self.optimizer.param_groups:
                made = [ParameterBucket(some, rank, ranks) for some in divided(group["params"])]
                group["params"] = [bucket.part for bucket in made]
                self._buckets += made
        self._begun = 0
        for bucket in self._buckets:
            for index, parameter in enumerate(bucket.parameters):
                parameter.register_post_accumulate_grad_hook(self._hook(bucket, index))
        self.optimizer.register_step_pre_hook(self._before_step)
        self.optimizer.register_step_post_hook(self._after_step)

    @contextlib.contextmanager
    def batch(self, last: bool) -> Iterator[None]:
        """Gradients are exchanged in the last batch of a step only."""
        self._last = last
        yield

    def gradients(self) -> dict[str, torch.Tensor]:
        """Gathered from the ranks that hold a part of each bucket."""
        import torch

        found = {}
        for bucket in self._buckets:
            whole = torch.empty_like(bucket.values)
            all_gather(whole, bucket.part_gradient).wait()
            for parameter, place in zip(bucket.parameters, bucket.places, strict=True):
                found[self._names[id(parameter)]] = whole[place].view(parameter.shape)
        return found

    def _hook(self, bucket: ParameterBucket, index: int) -> Callable[[Any], None]:
        def take(_: Any) -> None:
            if self._last:
                bucket.take(index)
                self._reduce_complete()

        return take

    def _reduce_complete(self) -> None:
        """Begin the reductions of complete buckets, in the same order on every rank."""
        while self._begun < len(self._buckets) and not self._buckets[self._begun].missing:
            self._buckets[self._begun].reduce()
            self._begun += 1

    def _before_step(self, *_: Any) -> None:
        for bucket in self._buckets[self._begun :]:  # some of its parameters have no gradient in this step
            bucket.reduce()
        for bucket in self._buckets:
            bucket.finish()
        self._begun = 0

    def _after_step(self, *_: Any) -> None:
        for work in [bucket.gather() for bucket in self._buckets]:
            work.wait()


def divided(parameters: list[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Parameters in the order in which backward gives their gradients, in buckets of one precision and device."""
    buckets: list[list[torch.nn.Parameter]] = []
    size = 0
    for parameter in reversed([p for p in parameters if p.requires_grad]):
        amount = parameter.numel() * parameter.element_size()
        same = buckets and (buckets[-1][0].dtype, buckets[-1][0].device) == (parameter.dtype, parameter.device)
        if not same or size + amount > BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += amount
    return buckets
