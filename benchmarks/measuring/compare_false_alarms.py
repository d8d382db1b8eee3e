"""How often `perfkit compare` calls a program different from itself, on this machine with its noise.

    python3 benchmarks/measuring/compare_false_alarms.py                      100 comparisons at the default: 3 to 5 h
    python3 benchmarks/measuring/compare_false_alarms.py --out tries.jsonl    keep each, and go on where the file stops
    python3 benchmarks/measuring/compare_false_alarms.py --tries 5            a look

Must be reached: at most 5 % of the comparisons with a verdict better or worse, in the step, and as many in any pass or
family, memory or efficiency. A busy machine is what this is for: let something else run beside it, a second one of
these for instance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from perfkit.compare.stopping import FIRST_LAUNCHES

WORKLOAD = ("mlp", "--preset", "deep", "--dim", "layers=4", "-B", "64")
WRONG = {"better", "worse"}
MOST = 0.05


def one_try(seed: int, launches: int) -> dict[str, str]:
    """The verdict on each metric of one comparison of the workload with itself."""
    command = ["compare", *WORKLOAD, "--self-test", "--tries", "1", "--launches", launches, "--seed", seed, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "perfkit", *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    found = json.loads(done.stdout)["comparisons"][0]
    return {metric: judged["verdict"] for metric, judged in found.items()}


def main() -> int:
    """Try, print every try and the rates; 1 when one is above what is allowed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--launches", type=int, default=FIRST_LAUNCHES)
    parser.add_argument("--seed", type=int, default=1337, help="of the first try; the others count on")
    parser.add_argument("--out", type=Path, help="file with a line for each try")
    options = parser.parse_args()
    kept = options.out.read_text().splitlines() if options.out and options.out.exists() else []
    found: list[dict[str, str]] = [json.loads(line) for line in kept]
    for number in range(len(found), options.tries):
        found.append(one_try(options.seed + number, options.launches))
        if options.out:
            with options.out.open("a") as file:
                print(json.dumps(found[-1]), file=file)
        said = [f"{metric} {verdict}" for metric, verdict in found[-1].items() if metric == "step" or verdict in WRONG]
        print(f"try {number + 1}: {', '.join(said)}", flush=True)
    steps = Counter(one["step"] for one in found)
    parts = sum(any(verdict in WRONG for metric, verdict in one.items() if metric != "step") for one in found)
    alarms = sum(steps[verdict] for verdict in WRONG)
    print(f"{len(found)} comparisons: " + ", ".join(f"{count} {verdict}" for verdict, count in steps.most_common()))
    print(
        f"false alarms: {alarms} in the step, {parts} in a part, memory or efficiency; at most {MOST:.0%} are allowed"
    )
    return int(max(alarms, parts) > MOST * len(found))


if __name__ == "__main__":
    sys.exit(main())
