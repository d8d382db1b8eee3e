"""The share of each trace's kernel time whose operator `perfkit bench TRACE --kernel` can rebuild, and why no more.

    python benchmarks/replayed_shares.py TRACE... [--device cpu] [--operators]

For docs/replay.md. Nothing is run: an operator counts where its arguments become a recipe, and the device has it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from perfkit.errors import PerfkitError
from perfkit.replay import replay
from perfkit.replay.recorded import TraceTable


def shares(path: Path, device: str) -> tuple[dict[str, float], dict[str, float]]:
    """Time in ns of the operators that can be rebuilt, by name, and of the rest by reason."""
    trace = TraceTable(path)
    rebuilt: defaultdict[str, float] = defaultdict(float)
    left: defaultdict[str, float] = defaultdict(float)
    for number, group in enumerate(trace.kernel_groups(), 1):
        try:
            rebuilt[replay.rebuildable(trace.by_kernel(number), device).calls.operator] += group.time_ns
        except PerfkitError as error:
            left[error.message.replace(f"Kernel {number}", "Kernel")] += group.time_ns
    return rebuilt, left


def _sorted(times: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(times.items(), key=lambda pair: -pair[1])


def main() -> None:
    """Print a line a trace; with --operators also every operator and reason with its share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--operators", action="store_true")
    given = parser.parse_args()
    for path in given.traces:
        try:
            rebuilt, left = shares(path, given.device)
        except PerfkitError as error:
            print(f"{path.name}: {error}")
            continue
        total = (sum(rebuilt.values()) + sum(left.values())) or 1.0
        print(f"{path.name}: {sum(rebuilt.values()) / total:.1%} of the kernel time, {len(rebuilt)} operators")
        for name, ns in [*_sorted(rebuilt), *_sorted(left)] if given.operators else ():
            print(f"    {ns / total:6.1%}  {'' if name in rebuilt else 'not: '}{name}")


if __name__ == "__main__":
    main()
