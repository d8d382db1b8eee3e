"""The limits that Linux puts on this process's control group, as in containers and on CI runners.

`/proc` describes the whole machine. Version 2 of control groups names its files memory.max, memory.current and cpu.max,
version 1 memory.limit_in_bytes, memory.usage_in_bytes and cpu.cfs_*_us. A group above may be narrower than the
process's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfkit.hardware.system import ROOT, number_of, text_of

_MEMORY = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_UNLIMITED = 1 << 60  # version 1 writes a number near 2⁶³ for none


def quota(root: Path = ROOT) -> float | None:
    """Return the cores' worth of CPU time that the narrowest group allows; None where none has a limit."""
    limits = []
    for folder in _groups(root, "cpu"):
        both = text_of(folder / "cpu.max").split() or [text_of(folder / f"cpu.cfs_{n}_us") for n in ("quota", "period")]
        amount, period = [*both, ""][:2]
        if amount.isdigit() and period.isdigit() and int(period) > 0:
            limits.append(int(amount) / int(period))
    return min(limits, default=None)


def memory_limit(root: Path = ROOT) -> int | None:
    """Return the bytes that the narrowest group may use; None where none has a limit."""
    return min((int(limit) for _, limit, _ in _limits(root)), default=None)


def free_bytes(root: Path = ROOT) -> float | None:
    """Return the bytes that the narrowest group still allows; None where none has a limit.

    Files that a group has read count as used, but go when memory is needed (`inactive_file`).
    """
    free = []
    for folder, limit, use_name in _limits(root):
        use = number_of(folder / use_name)
        if use is not None:
            free.append(max(0.0, limit - use + _inactive_file(folder / "memory.stat")))
    return min(free, default=None)


def _limits(root: Path) -> Iterator[tuple[Path, float, str]]:
    """The groups with a limit of memory: folder, limit in bytes, name of the file with the bytes in use."""
    for folder in _groups(root, "memory"):
        for limit_name, use_name in _MEMORY:
            limit = number_of(folder / limit_name)
            if limit is not None and limit < _UNLIMITED:
                yield folder, limit, use_name


def _inactive_file(path: Path) -> float:
    named = dict(line.split(" ", 1) for line in text_of(path).splitlines() if " " in line)
    text = named.get("total_inactive_file", named.get("inactive_file", "0"))
    return float(text) if text.isdecimal() else 0.0


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control groups for `controller`, innermost first."""
    mount = root / "sys/fs/cgroup"
    for line in text_of(root / "proc/self/cgroup").splitlines():
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not names:
            top = mount
        elif controller in names.split(","):
            top = mount / names if (mount / names).is_dir() else mount / controller
        else:
            continue
        inner = top / path.lstrip("/")
        yield inner
        # Inside a container the path may be the host's: then only the mount point itself exists.
        yield from (parent for parent in inner.parents if parent == top or top in parent.parents)
