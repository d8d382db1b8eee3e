"""The limit of memory that Linux puts on this process's control group, as containers and CI runners have it.

`/proc/meminfo` describes the whole machine. Version 2 of control groups names its files memory.max and memory.current,
version 1 memory.limit_in_bytes and memory.usage_in_bytes. A group above may be narrower than the process's own. Files
that the group has read count as used, but go when memory is needed (`inactive_file`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes a number near 2⁶³ for none


def free_bytes() -> float | None:
    """Return the bytes that the narrowest group around this process still allows; None where none has a limit."""
    found = [free for folder, names in _groups() if (free := _free(folder, *names)) is not None]
    return min(found, default=None)


def _groups() -> Iterator[tuple[Path, tuple[str, str]]]:
    """The folders of this process's groups, each with those above it, and the names of limit and use in them."""
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            root, names = _ROOT, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = _ROOT / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        for part in (inside, *inside.parents):
            yield root / part, names


def _free(folder: Path, limit_name: str, use_name: str) -> float | None:
    limit, use = _number(folder / limit_name), _number(folder / use_name)
    if limit is None or use is None or limit >= _UNLIMITED:
        return None
    return max(0.0, limit - use + _inactive_file(folder / "memory.stat"))


def _number(path: Path) -> float | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return float(text) if text.isdecimal() else None


def _inactive_file(path: Path) -> float:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0.0
    named = dict(line.split(" ", 1) for line in lines if " " in line)
    text = named.get("total_inactive_file", named.get("inactive_file", "0"))
    return float(text) if text.isdecimal() else 0.0
