"""What source lines add to a whole capture: `python benchmarks/measuring/lines_cost.py "train.py --small" …`.

Each program runs under `perfkit capture` with lines and without, in turns; printed are the medians of the whole time,
their ratio (limit 1.25), and those of the timed and the profiled steps, which lines must not change.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.25
OPTIONS = {"with lines": ["--lines"], "without": ["--no-lines"]}


def captured(program: str, options: list[str], folder: Path) -> tuple[float, float, float]:
    """Seconds of the whole capture, and the medians of its timed and of its profiled steps in ms."""
    command = [sys.executable, "-m", "perfkit", "capture", *options, "--out", str(folder), "--overwrite", "--"]
    begun = time.perf_counter()
    subprocess.run([*command, sys.executable, *program.split()], check=True, capture_output=True)
    took = time.perf_counter() - begun
    (backend,) = json.loads((folder / "run.json").read_text())["backends"]
    timed, profiled = (statistics.median(backend[name]) / 1e6 for name in ("samples_ns", "profiled_ns"))
    return took, timed, profiled


def main() -> None:
    """Measure each program, and exit with 1 where lines cost more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+", help="a script with its arguments")
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    over = False
    with tempfile.TemporaryDirectory() as scratch:
        for program in asked.programs:
            found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in OPTIONS}
            for turn in range(asked.turns):
                for name in sorted(OPTIONS, reverse=turn % 2 == 1):
                    found[name].append(captured(program, OPTIONS[name], Path(scratch) / "run"))
            lined, plain = ([statistics.median(column) for column in zip(*found[n], strict=True)] for n in OPTIONS)
            over |= lined[0] > LIMIT * plain[0]
            names = ("whole capture (s)", "timed step (ms)", "profiled step (ms)")
            print(program)
            for name, a, b in zip(names, lined, plain, strict=True):
                print(f"  {name}: {a:.3f} with lines, {b:.3f} without, ratio {a / b:.3f}", flush=True)
    sys.exit(int(over))


if __name__ == "__main__":
    main()
