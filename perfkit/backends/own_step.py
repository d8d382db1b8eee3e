"""A workload's own training step: called as it is, with the gradients that its optimizer used kept for the check.

A step may clear its gradients when it is done, or clip them first. So they are read when its optimizer begins to step.
Nothing in it is marked: what is forward, backward and optimizer the readers find by autograd's and PyTorch's own marks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perfkit.workloads import batch_formats

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.batch_formats import Outputs
    from perfkit.workloads.interface import Batch, Workload


class OwnStep:
    """The step of `workload`, and what it left: of the gradients that are `present`, by name, those it stepped with."""

    def __init__(self, workload: Workload, present: Callable[[], dict[str, torch.Tensor]], optimizer: Any) -> None:
        self._workload, self._present, self._optimizer = workload, present, optimizer
        self._kept: dict[str, torch.Tensor] = {}

    def run(self, call: Any, batches: Sequence[Batch], keep: bool) -> tuple[Outputs, torch.Tensor | None]:
        """Run the step once a batch; outputs and loss of the last. With `keep` the gradients are kept."""
        import torch

        self._kept = {}
        hooks = [one.register_step_pre_hook(self._keep) for one in self._optimizers()] if keep else []
        try:
            for batch in batches:
                result = self._workload.step(call, batch, self._optimizer)
        finally:
            for hook in hooks:
                hook.remove()
        outputs, loss = batch_formats.parted({batch_formats.LOSS: result} if isinstance(result, float) else result)
        return batch_formats.normal(outputs), None if loss is None else torch.as_tensor(loss).detach()

    def gradients(self) -> dict[str, torch.Tensor]:
        """Gradients that the optimizer used first for each parameter, where they were kept; else the present ones."""
        return self._kept or self._present()

    def _keep(self, *_: Any) -> None:
        for name, gradient in self._present().items():
            if name not in self._kept:
                self._kept[name] = gradient.detach().clone()

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers that the workload made: one, or some in a tuple, list or mapping."""
        import torch

        made = self._optimizer
        several = made.values() if isinstance(made, dict) else made if isinstance(made, tuple | list) else [made]
        return [one for one in several if isinstance(one, torch.optim.Optimizer)]
