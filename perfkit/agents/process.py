"""One perfkit command in a process of its own: its output, its progress, and its end when the client cancels."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.abc

Progress = Callable[[float, str], Awaitable[None]]
_MOST = 1 << 26  # bytes of an output that are kept


class CommandResult(NamedTuple):
    """How a command ended: exit code, standard output, and standard error."""

    code: int
    output: str
    said: str


async def perfkit(words: Sequence[str], folder: Path, progress: Progress) -> CommandResult:
    """Run `perfkit WORDS` in `folder`; each line on its standard error is progress, and what a captured program prints.

    Where the task is cancelled, the command and all that it started are killed.
    """
    process = await anyio.open_process(
        [sys.executable, "-m", "perfkit", *words], cwd=folder, stdin=None, start_new_session=True,
        env={**os.environ, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    output, said = bytearray(), bytearray()
    numbers = itertools.count(1)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_collect, process.stdout, output, numbers, progress if words[0] == "capture" else None)
            group.start_soon(_collect, process.stderr, said, numbers, progress)
        return CommandResult(await process.wait(), output.decode(errors="replace"), said.decode(errors="replace"))
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _collect(
    stream: anyio.abc.ByteReceiveStream | None, kept: bytearray, numbers: Iterator[int], progress: Progress | None
) -> None:
    """Keep what comes from `stream`, and say each line of it as progress, with the next of `numbers`."""
    if stream is None:
        return
    rest = b""
    async for part in stream:
        kept += part[: _MOST - len(kept)]
        if progress is None:
            continue
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            await progress(next(numbers), line.decode(errors="replace")[:200])
