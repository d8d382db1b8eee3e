"""Several ranks that train one model together: the ways in which they can, found by name.

A backend gets what it calls and steps with from `begin`, whether the process is alone or one of many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfkit.backends.parallel.ddp import Ddp
from perfkit.backends.parallel.fsdp import Fsdp
from perfkit.backends.parallel.interface import Parallel
from perfkit.backends.parallel.own import Own
from perfkit.backends.parallel.zero1 import Zero1

if TYPE_CHECKING:
    import torch

    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Workload

__all__ = ["Parallel", "begin", "cannot"]

_WAYS: dict[str, type[Parallel]] = {way.name: way for way in (Parallel, Ddp, Fsdp, Zero1)}


def begin(workload: Workload, model: torch.nn.Module, settings: Settings) -> Parallel:
    """`model` and its optimizer, made for the way that `settings.parallel` names ("": one process alone)."""
    own = settings.parallel and settings.parallel == workload.parallel
    return (Own if own else _WAYS[settings.parallel])(workload, model, settings)


def cannot(backend: str, settings: Settings | None, ways: tuple[str, ...]) -> str | None:
    """One sentence where `settings` ask for ranks in a way that is not one of the backend's `ways`."""
    if settings is None or not settings.in_group or settings.parallel in ways:
        return None
    known = f"; it can by {' or '.join(filter(None, ways))}" if any(ways) else ""
    return f"{backend} does not train by {settings.parallel}{known}."
