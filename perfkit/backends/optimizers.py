"""The form in which PyTorch runs an optimizer, where a workload leaves that to PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FUSED = (
    "AdamW steps by PyTorch's fused kernel, a few launches for all parameters, which this backend takes where the "
    "workload leaves the form to PyTorch; `--optimizer fused` gives it to every backend."
)


def fuse(optimizer: torch.optim.Optimizer | None) -> bool:
    """Let `optimizer` step by PyTorch's fused kernel, if it is AdamW in a form that nobody chose. Says whether it does.

    The algorithm and the state are PyTorch's own; the fused kernel reads and writes each number once where the default
    form, on a GPU a dozen operators on lists, takes it through memory several times. Call it before the first step.
    """
    import torch

    if type(optimizer) is not torch.optim.AdamW or not all(map(_may_fuse, optimizer.param_groups)):
        return False
    for group in (optimizer.defaults, *optimizer.param_groups):
        group["fused"], group["foreach"] = True, False
    return True


def _may_fuse(group: dict[str, object]) -> bool:
    """Return whether the form of a group of parameters is open, and the fused kernel knows all of them."""
    parameters = group["params"]
    assert isinstance(parameters, list)
    known = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)
    return known and group["fused"] is None and group["foreach"] is None and not group["differentiable"]
