"""Where perfkit keeps what it can make again: measured ceilings, compiled programs, trained vocabularies."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`$PERFKIT_CACHE`, else `$XDG_CACHE_HOME/perfkit`, else `~/.cache/perfkit`. It need not exist yet."""
    own = os.environ.get("PERFKIT_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says that a relative path is to be ignored.
    root = Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"
    return root / "perfkit"
