"""How long a command takes to answer in two trees of perfkit: whole processes, in turns, and the ratios pair by pair.

    git worktree add /tmp/before 70573e9c
    python benchmarks/measuring/answers.py --before /tmp/before -- run gpt2 --backend eager,thunder-llmc --steps 5 \\
        --batch-size 4 --sequence-length 64 --data docs/
    python benchmarks/measuring/answers.py --before /tmp/before -- compare gpt2 --preset tiny --no-early

Each side has a cache of its own, and one run that is not counted fills it: ceilings are measured, kernels compiled, and
what a tree keeps between runs is there. With `--new` every counted run computes its reference anew. The time of the
processor, all processes together, is less moved by who else uses the machine than the time on the wall.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


def main() -> int:
    """Print each pair of runs, and the medians of their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a tree of perfkit at an earlier commit")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--new", action="store_true", help="no reference of an earlier run, in trees that keep them")
    parser.add_argument("command", nargs="+", help="after --: what perfkit is told, without --out")
    given = parser.parse_args()
    sides = {"before": given.before.resolve(), "after": HERE}
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}: perfkit {' '.join(given.command)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="perfkit-answers-") as folder:
        for name, tree in sides.items():
            timed(tree, given.command, Path(folder) / name, given.new)
        pairs = []
        for number in range(given.runs):
            order = list(sides) if number % 2 == 0 else list(sides)[::-1]
            took = {name: timed(sides[name], given.command, Path(folder) / name, given.new) for name in order}
            pairs.append([took["after"][kind] / took["before"][kind] for kind in (0, 1)])
            print(*(f"{n}: {took[n][0]:.1f} s, processor {took[n][1]:.1f} s;" for n in sides), flush=True)
    wall, processor = (statistics.median(values) for values in zip(*pairs, strict=True))
    print(f"after / before, median of {given.runs}: {wall:.2f} on the wall, {processor:.2f} of the processor")
    return 0


def timed(tree: Path, command: list[str], cache: Path, new: bool) -> tuple[float, float]:
    """Seconds on the wall, and of the processor, of one command in `tree`."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PERFKIT_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": ""}
    environment |= {"PERFKIT_REFERENCES": "new"} if new else {}
    with tempfile.TemporaryDirectory(prefix="perfkit-answer-") as out:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        arguments = [sys.executable, "-m", "perfkit", *command, "--out", f"{out}/run"]
        subprocess.run(arguments, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
