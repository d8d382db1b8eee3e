"""How several ranks share the training of one model: what is called, what steps, and where results lie."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Workload


class Parallel:
    """One process alone; the ways of several ranks are its subclasses.

    Every rank gives the loss of its share of the batch. What a way owes is the gradient of the mean of these losses.
    """

    name: ClassVar[str] = ""
    # Parameters by name that other ranks hold and this one does not.
    elsewhere: frozenset[str] = frozenset()

    def __init__(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> None:
        self.model = model
        self.call: Callable[..., Any] = self.wrapped(workload, settings)
        self.optimizer: Any = workload.optimizer(self.model, settings) if settings.training else None

    def wrapped(self, workload: Workload, settings: Settings) -> Callable[..., Any]:
        """Return the callable to use for the model, which may be changed in place, or replaced (`self.model`)."""
        return self.model

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one batch of a step: only the `last` one's gradients are exchanged."""
        return contextlib.nullcontext()

    def whole(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Tensors of which this rank may hold a part, in full. Every rank must call it alike."""
        return dict(tensors)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters by name, in full."""
        return self.whole(dict(self.model.named_parameters()))

    def gradients(self) -> dict[str, torch.Tensor]:
        """Gradients of the last step by parameter name, in full; none of a parameter that has none."""
        return self.whole({name: p.grad for name, p in self.model.named_parameters() if p.grad is not None})
