"""Training logs of llm.c: measurements by step without kernels, which `perfkit report` has a page of its own for."""

from __future__ import annotations

from pathlib import Path

from perfkit.errors import InputError
from perfkit.readers.formats import TRAINING, Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable


def knows(head: Head) -> bool:
    """Accept text most of whose first lines are measurements of a step."""
    from perfkit.readers.training_log import is_training_log

    return b"s:" in head.text[:8192] and is_training_log(head.text)


def read(path: Path) -> KernelTable:
    """Refuse it as a kernel table: `perfkit report` has a page for it."""
    raise InputError(f"{path} is a training log, not a profile.", "`perfkit report` plots it.")


FORMAT = Format("training logs of llm.c (main.log)", knows, read, holds=TRAINING, endings=(".log",))
