"""The first of a model's repeated layers alone, for tools that take minutes a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfkit.errors import UsageError

if TYPE_CHECKING:
    import torch


def keep_one_layer(model: torch.nn.Module, pattern: str) -> None:
    """Cut the repeated layers that `pattern` (such as `transformer.h.*`) names down to the first, in place.

    Raises `UsageError` where the workload names none, or they are not a list of modules.
    """
    import torch

    parent, star, rest = pattern.partition(".*")
    try:
        found = model.get_submodule(parent) if star and not rest else None
    except AttributeError:
        found = None
    if not isinstance(found, torch.nn.ModuleList | torch.nn.Sequential) or not len(found):
        raise UsageError(
            "--one-layer needs a workload that names its repeated layers, a torch.nn.ModuleList.",
            'Give it `layers = "path.of.the.list.*"`, or leave --one-layer out.',
        )
    del found[1:]
