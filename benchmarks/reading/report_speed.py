"""Compare the time and memory of `perfkit report` at two commits, in turns.

    python benchmarks/reading/report_speed.py TRACE… [--before main] [--runs 9]

The commit `--before` is checked out into a temporary worktree; after is this folder. Each measurement is a process of
its own, the two sides in turns (A B B A …). Printed for each trace: median CPU time of the processes, their ratio, and
the peak memory. Goal of a change that should make reports faster: ratios below 1. About 30 s a trace of 100,000 events.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def measured(tree: Path, trace: Path) -> tuple[float, float]:
    """CPU seconds and peak MB of a report of `trace` by the perfkit in `tree`."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as for a user
    command = [sys.executable, "-m", "perfkit", "report", str(trace), "--format", "none"]
    with tempfile.TemporaryDirectory() as elsewhere:
        process = subprocess.Popen(
            command, env=environment, cwd=elsewhere, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"perfkit report {trace} failed in {tree}.")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def compare(before: Path, trace: Path, runs: int) -> None:
    """Print a line for `trace`."""
    found: dict[Path, list[tuple[float, float]]] = {before: [], ROOT: []}
    for tree in found:
        measured(tree, trace)  # fills the caches of files and of compiled modules
    for number in range(runs):
        for tree in (before, ROOT) if number % 2 else (ROOT, before):
            found[tree].append(measured(tree, trace))
    (old, old_peak), (new, new_peak) = (
        (statistics.median(one[0] for one in runs_), max(one[1] for one in runs_)) for runs_ in found.values()
    )
    print(
        f"{trace.name}: {old:.2f} s before, {new:.2f} s after, ratio {new / old:.3f}; "
        f"peak {old_peak:.0f} and {new_peak:.0f} MB"
    )


def main() -> None:
    """Measure each trace given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--before", default="main")
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args()
    if not given.traces:
        print("Nothing to measure: name traces.")
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), given.before], check=True)
        try:
            for trace in given.traces:
                compare(tree, trace.resolve(), given.runs)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
