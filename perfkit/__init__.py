"""perfkit: where a PyTorch step spends its time, how far each part is from what the machine can do, and what helps.

    import perfkit

    run = perfkit.read("runs/gpt2")   # shows itself in a notebook
    run.tables["eager"].frame         # the kernel table, a pandas data frame

    with perfkit.profile("runs/mine", warmup=5, steps=3) as p:   # or as a decorator of a function that is a step
        for batch in loader:
            with perfkit.range("augment"):                       # free while nothing records
                batch = augment(batch)
            train_step(batch)
            p.step()

Importing perfkit imports neither torch nor pandas.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from perfkit.api import Reading
    from perfkit.cost.model import Cost, CostFunction
    from perfkit.profiling import Profile

__version__ = "0.1.0"

__all__ = ["__version__", "profile", "range", "read", "register_cost"]


def read(path: str | os.PathLike[str]) -> Reading:
    """Read a run folder, a torch.profiler trace or a kernel table; see `perfkit.api.Reading`.

    Raises `perfkit.errors.InputError`, in a sentence, for what is missing, damaged or none of these.
    """
    from perfkit.api import Reading

    return Reading.of(path)


def profile(
    out: str | os.PathLike[str] | None = None,
    warmup: int = 5,
    steps: int = 3,
    memory: bool = False,
    backend: str = "program",
    overwrite: bool = False,
    lines: bool | None = None,
) -> Profile:
    """Record a few steps of a loop into the run folder `out` (None: a new one in runs/); see `perfkit.profiling`.

    Raises `perfkit.errors.UsageError` for numbers or a folder that cannot be.
    """
    from perfkit.profiling import Profile

    return Profile(out, warmup, steps, memory, backend, overwrite, lines)


def range(name: str) -> AbstractContextManager[None]:
    """Mark what the block does with `name` for whoever records; while nobody does, it costs a test."""
    from perfkit import ranges

    return ranges.mark(name)


def register_cost(name: str, function: CostFunction | Cost | None = None) -> Any:
    """Register the FLOP and bytes of an operator ("mylib::op") or GPU kernel by name; see `perfkit.cost.own`.

    `function` gets a `perfkit.cost.Call` with the shapes and gives a `perfkit.cost.Cost`; without it this decorates
    one. Raises `perfkit.errors.UsageError` for what is neither.
    """
    from perfkit.cost import own

    return own.register_cost(name, function)
