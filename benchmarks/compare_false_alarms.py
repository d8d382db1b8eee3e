"""How often `perfkit compare` calls a program different from itself, on this machine with its noise.

    python3 benchmarks/compare_false_alarms.py               100 comparisons of twelve launches: 2 h on two cores
    python3 benchmarks/compare_false_alarms.py --tries 5     a look

Must be reached: at most 5 % of the comparisons with a verdict better or worse, in the step and in any pass or family. A
busy machine is what this is for: let something else run beside it.
"""

from __future__ import annotations

import argparse

from perfkit.cli import main as perfkit

WORKLOAD = ("mlp", "--preset", "deep", "--dim", "layers=4", "-B", "64")


def main() -> None:
    """Run the self-test; exits with its code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--launches", type=int, default=12)
    options = parser.parse_args()
    arguments = ["compare", *WORKLOAD, "--self-test", "--tries", options.tries, "--launches", options.launches]
    perfkit(list(map(str, arguments)))


if __name__ == "__main__":
    main()
