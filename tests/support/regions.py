"""Files of perfkit/profile.cuh made by hand.

python -m tests.support.regions FILE        writes one
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from perfkit.instructions import regions

CYCLE_NS, START, TICK = 0.5, 1_000_000, 32


def row(name: str, sm: int, warp: int, begin: float, end: float, launch: int = 1) -> tuple[object, ...]:
    """A record of the times `begin` to `end` in ns; each multiprocessor's cycles begin anywhere."""
    cycles = [int(at / CYCLE_NS) + 7_000_000 * (sm + 1) for at in (begin, end)]
    ticks = [START + int(at) // TICK * TICK for at in (begin, end)]
    return (name.encode(), *cycles, *ticks, sm, sm, warp, launch)


def written(path: Path, rows: list[tuple[object, ...]], count: int | None = None, sms: int = 4) -> Path:
    """Write a file of `rows`, of which `count` were recorded in all."""
    head = np.array([(regions.MAGIC, 1, 64, sms, 0, len(rows) if count is None else count)], regions._HEAD)
    path.write_bytes(head.tobytes() + np.array(rows, regions._RECORD).tobytes())
    return path


def uneven() -> list[tuple[object, ...]]:
    """Two multiprocessors of two warps that load, then compute: the second computes four times as long."""
    made = []
    for sm, long in ((0, 10_000.0), (1, 40_000.0)):
        for warp in (0, 1):
            made += [row("load", sm, warp, 0, 5000), row("compute", sm, warp, 6000 + 1000 * warp, 6000 + long)]
    return made


if __name__ == "__main__":
    written(Path(sys.argv[1]), uneven())
