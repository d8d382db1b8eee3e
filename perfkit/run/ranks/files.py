"""Files that the first host alone has, for ranks of other hosts: the reference goes there, their traces come back."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfkit.backends.parallel.ranks import Ranks

SENT = "sent"  # key of a result: bytes of the file that it calls `trace`, for the session to write
_CHUNK = 1 << 26  # bytes of a broadcast


@contextlib.contextmanager
def seen(folder: Path, ranks: Ranks) -> Iterator[Path]:
    """Give `folder` if this rank's host has it, else a copy that is removed after the block; every rank must enter.

    The first rank of each host that lacks the folder writes the copy, from what rank 0 reads.
    """
    if ranks.size == 1 or all(_gathered(folder.is_dir())):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="perfkit-from-host0-") as scratch:
        here, host = folder.is_dir(), socket.gethostname()
        keeps = not here and os.environ.get("LOCAL_RANK", "0") == "0"
        _copy(folder, Path(scratch) if keeps else None, ranks)
        copies = dict(found for found in _gathered((host, scratch) if keeps else None) if found)
        yield folder if here else Path(copies[host])
        ranks.meet()  # the others of this host read it too


def _copy(folder: Path, into: Path | None, ranks: Ranks) -> None:
    """Broadcast rank 0's files in `folder`, and write them `into` a folder where this rank is given one."""
    import torch
    from torch import distributed

    listed = [{path.name: path.stat().st_size for path in sorted(folder.iterdir())}] if ranks.rank == 0 else [None]
    distributed.broadcast_object_list(listed, src=0, device=torch.device(ranks.device))
    for name, size in (listed[0] or {}).items():
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(open(folder / name, "rb")) if ranks.rank == 0 else None
            target = stack.enter_context(open(into / name, "wb")) if into else None
            for start in range(0, size, _CHUNK):
                count = min(_CHUNK, size - start)
                part = torch.empty(count, dtype=torch.uint8, device=ranks.device)
                if source:
                    part.copy_(torch.frombuffer(bytearray(source.read(count)), dtype=torch.uint8))
                distributed.broadcast(part, src=0)
                if target:
                    target.write(part.cpu().numpy().tobytes())


def _gathered(own: Any) -> list[Any]:
    """Every rank's `own`, by rank."""
    from torch import distributed

    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, own)
    return found


@contextlib.contextmanager
def written(folder: Path, ranks: Ranks, result: dict[str, Any]) -> Iterator[Path]:
    """The folder in which to write a trace: `folder`, or where this host lacks it one that lives as long as the block.

    Then the trace, which the block names in `result`, is put into it for the session to write.
    """
    if ranks.size == 1 or folder.is_dir():
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="perfkit-trace-") as scratch:
        yield Path(scratch)
        result[SENT] = (Path(scratch) / result["trace"]).read_bytes()


def keep(folder: Path, results: list[Any]) -> None:
    """Write what ranks of other hosts sent into `folder`."""
    for result in results:
        if isinstance(result, dict) and SENT in result:
            (folder / result["trace"]).write_bytes(result.pop(SENT))
