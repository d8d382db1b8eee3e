"""Options for ranks, several or a group of one, checked before anything starts."""

from __future__ import annotations

import msgspec

from perfkit.errors import Unavailable, UsageError
from perfkit.run_folder import Settings
from perfkit.workloads.choices import not_one_of
from perfkit.workloads.interface import Workload

WAYS = ("ddp", "fsdp", "zero1")


def resolved(workload: Workload, settings: Settings) -> Settings:
    """`settings` with the way of the ranks filled in: the workload's own where it has one, else ddp.

    Raises `UsageError` for what does not go together, `Unavailable` for more ranks than GPUs.
    """
    if not settings.in_group:
        if settings.hosts > 1:
            raise UsageError("--nnodes is for several ranks.", "Give --ranks 2, or leave it out.")
        return settings
    ways = (*([workload.parallel] if workload.parallel else []), *WAYS)
    settings = msgspec.structs.replace(settings, parallel=settings.parallel or ways[0])
    if settings.parallel not in ways:
        raise not_one_of("--parallel", settings.parallel, ways)
    if not settings.training:
        raise UsageError(f"{_option(settings)} belongs to training.", "Leave it out, or leave --inference out.")
    if settings.profiler in ("ncu", "nsys"):
        raise UsageError(
            f"--profiler {settings.profiler} profiles one process alone, and {_option(settings)} starts ranks.",
            "Leave one of them out.",
        )
    if settings.batch_size % settings.ranks:
        raise UsageError(
            f"{settings.ranks} ranks do not divide the batch of {settings.batch_size} samples: -B is of all together.",
            f"Give -B {-(-settings.batch_size // settings.ranks) * settings.ranks}.",
        )
    if settings.parallel == "zero1" and workload.has("step"):
        raise UsageError(f"{workload.name} has a training step of its own.", "Choose --parallel ddp or fsdp.")
    _check_hosts(settings)
    return settings


def _option(settings: Settings) -> str:
    return f"--ranks {settings.ranks}" if settings.ranks > 1 else f"--parallel {settings.parallel}"


def _check_hosts(settings: Settings) -> None:
    each, rest = divmod(settings.ranks, settings.hosts)
    if rest:
        raise UsageError(
            f"{settings.hosts} hosts do not divide {settings.ranks} ranks.", "--ranks counts those of all hosts."
        )
    if settings.device == "cpu":
        return
    if ":" in settings.device:
        raise UsageError(
            f"--device {settings.device} names one GPU, and every rank has its own.", "Give --device cuda."
        )
    import torch

    if each > (count := torch.cuda.device_count()):
        raise Unavailable(
            f"{each} ranks need {each} GPUs, and this machine has {count}.", f"Give --ranks {count * settings.hosts}."
        )
