"""How long `perfkit --help` and `perfkit report` take as whole processes. About a minute.

Must be reached: `--help` under 0.3 s; the report of a small run, HTML included, under 1.2 s. The run is GPT-2 tiny on
eager and thunder-llmc, made first. Medians of interleaved processes, and of the processor time that they took.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGETS = {"perfkit --help": 0.3, "perfkit report RUN": 1.2}
REPEATS = 11


def timed(arguments: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one process; raises `CalledProcessError` when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "perfkit", *arguments], check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure and print; 1 when a target is missed."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        made = ["run", "gpt2", "--preset", "tiny", "--backend", "eager,thunder-llmc", "--steps", "5", "--out", run]
        timed(made)
        commands = {"perfkit --help": ["--help"], "perfkit report RUN": ["report", run]}
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(REPEATS):
            for name, arguments in commands.items():
                samples[name].append(timed(arguments))
    missed = 0
    print(f"{'command':22} {'median':>8} {'best':>8} {'cpu':>8} {'target':>8}   load {os.getloadavg()[0]:.1f}")
    for name, values in samples.items():
        wall, cpu = [w for w, _ in values], [c for _, c in values]
        median = statistics.median(wall)
        missed += median > TARGETS[name]
        row = [median, min(wall), statistics.median(cpu), TARGETS[name]]
        print(f"{name:22} " + " ".join(f"{value:7.2f}s" for value in row))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
