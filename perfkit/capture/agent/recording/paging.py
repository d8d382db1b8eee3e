"""Resources that a process takes from the operating system's kernel."""

from __future__ import annotations

import resource


def paging() -> tuple[float, float]:
    """Bytes of the pages that this process got from the kernel without reading a disk (minor faults, each taken as one
    small page), and its CPU time in the kernel in ns, both since it started; getrusage(2)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return float(used.ru_minflt * resource.getpagesize()), used.ru_stime * 1e9
