"""perfkit: where a PyTorch step spends its time, how far each part is from what the machine can do, and what helps.

    import perfkit

    run = perfkit.read("runs/gpt2")   # shows itself in a notebook
    run.tables["eager"].frame         # the kernel table, a pandas data frame

Importing perfkit imports neither torch nor pandas.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.api import Reading

__version__ = "0.1.0"

__all__ = ["__version__", "read"]


def read(path: str | os.PathLike[str]) -> Reading:
    """Read a run folder, a torch.profiler trace or a kernel table; see `perfkit.api.Reading`.

    Raises `perfkit.errors.InputError`, in a sentence, for what is missing, damaged or none of these.
    """
    from perfkit.api import Reading

    return Reading.of(path)
