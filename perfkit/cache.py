"""The folder of files that perfkit can make again: measured ceilings, compiled programs, trained vocabularies."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from perfkit.run_folder import written_whole

try:
    import fcntl
except ImportError:  # Windows: two processes may make the same thing, and the second replaces the first's
    fcntl = None  # type: ignore[assignment]


def cache_dir() -> Path:
    """`$PERFKIT_CACHE`, else `$XDG_CACHE_HOME/perfkit`, else `~/.cache/perfkit`. It need not exist yet."""
    own = os.environ.get("PERFKIT_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says that a relative path is to be ignored.
    root = Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"
    return root / "perfkit"


def digest(*parts: str | bytes) -> str:
    """Return 20 hexadecimal digits, for a file's name, of what the file depends on."""
    found = hashlib.sha256()
    for part in parts:
        found.update((part.encode() if isinstance(part, str) else part) + b"\0")
    return found.hexdigest()[:20]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, a file in the cache, while the block makes it: another process waits and then finds it.

    A folder that cannot be written is not an error here: making the file will say so.
    """
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                folder = cache_dir() / "locks"
                folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(open(folder / f"{path.parent.name}-{path.name}", "a"))
                fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
        yield


@contextlib.contextmanager
def making(path: Path) -> Iterator[Path]:
    """Give a temporary name for `path`, a file in the cache, and rename it afterwards: it is there whole or not at all.

    Raises `RunFailed` where the cache cannot be written.
    """
    with written_whole(path, "Set PERFKIT_CACHE to another folder.") as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
