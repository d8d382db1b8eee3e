"""Make a run folder whole or not at all, under a temporary name in the same place."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.run_folder import is_run_folder


def check_out(out: Path, overwrite: bool) -> None:
    """Raise `UsageError` where a run folder must not be made at `out`."""
    if not out.exists():
        return
    if not (out.is_dir() and (is_run_folder(out) or not any(out.iterdir()))):
        raise UsageError(f"{out} exists and is not a run folder.", "Choose another --out.")
    if is_run_folder(out) and not overwrite:
        raise UsageError(f"{out} holds a run already.", "Choose another --out, or give --overwrite.")


@contextlib.contextmanager
def made(out: Path) -> Iterator[Path]:
    """Give a temporary folder that takes the place of `out` at the end, and goes away if the block fails."""
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be made: {error.strerror}.", "Choose another --out.") from error
    try:
        yield partial
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
