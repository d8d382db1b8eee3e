"""Whether `perfkit compare` finds a slowdown of 5 % that is planted in one kernel family, and names the family.

    python3 benchmarks/measuring/compare_power.py                20 tries at the default: 40 to 70 min on two cores
    python3 benchmarks/measuring/compare_power.py --out FILE     keep each, and go on where the file stops
    python3 benchmarks/measuring/compare_power.py --tries 2      a look

The workload multiplies matrices, `PRODUCTS` times, beside elementwise work; the slow one multiplies once more, which is
5 % more of the family "matmul". The family must take at least 30 % of the step, which is checked. Must be reached: in
at least 90 % of the tries the family is called worse (after the correction over all families), and no other family is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from perfkit.compare import recording
from perfkit.compare.judge import compare
from perfkit.compare.launching import Program
from perfkit.compare.sources import load, target_of
from perfkit.compare.stopping import FIRST_LAUNCHES, Plan
from perfkit.statistics.verdicts import WORSE
from perfkit.workloads import find, resolve_settings

PRODUCTS = 20
FAMILY, LEAST_SHARE, MUST = "matmul", 0.3, 0.9
SOURCE = '''
import torch
from torch import nn
from perfkit.workloads import Workload


class Net(nn.Module):
    """x (B, W) → y (B, W): {products} products with one matrix, and a tanh of a larger tensor beside each."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(256, 256) / 16)

    def forward(self, x, target=None):
        y = x
        for _ in range({products}):
            y = torch.mm(x, self.matrix)
        for _ in range(20):
            x = torch.tanh(x + y)
        return x, None if target is None else nn.functional.mse_loss(x, target)


class Repeats(Workload):
    name = "{name}"
    summary = "products and tanh"
    presets = {{"one": {{"batch_size": 256}}}}

    def build(self, settings):
        torch.manual_seed(settings.seed)
        return Net()

    def batch(self, settings, step):
        x = torch.randn(settings.batch_size, 256, generator=torch.Generator().manual_seed(step))
        return (x, x) if settings.training else (x,)
'''


def program(folder: Path, name: str, products: int) -> Program:
    """The workload with so many products, as a side; inference, so that the planted work is all there is."""
    path = folder / f"{name}.py"
    path.write_text(SOURCE.format(name=name, products=products))
    settings = resolve_settings(find(str(path)), training=False)
    return Program(name, settings, "eager")


def one_try(folder: Path, seed: int, launches: int) -> dict[str, Any]:
    """Compare the two; what was said of the step and of the families."""
    sides = [program(folder, "plain", PRODUCTS), program(folder, "slowed", PRODUCTS + 1)]
    target = folder / "pair"
    plan = Plan(launches=launches, seed=seed)
    recording.measure_into(target, [(s, "", {}) for s in sides], plan, False, True, lambda who, what: None)
    found = compare(load(target_of(target)))
    pair = found.pairs[0]
    families = {t.metric.removeprefix("family:"): t for t in pair.tested if t.metric.startswith("family:")}
    guilty = families[FAMILY]
    return {
        "step": pair.step.judgement.verdict,
        "worse": sorted(name for name, t in families.items() if t.judgement.verdict == WORSE),
        "change": guilty.judgement.ratio,
        "low": guilty.judgement.low,
        "high": guilty.judgement.high,
        "share": (guilty.first or 0.0) / (pair.step.first or float("inf")),
    }


def main() -> int:
    """Try, print every try and the rates; 1 when a rate is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--launches", type=int, default=FIRST_LAUNCHES)
    parser.add_argument("--out", type=Path, help="file with a line for each try")
    options = parser.parse_args()
    kept = options.out.read_text().splitlines() if options.out and options.out.exists() else []
    found: list[dict[str, Any]] = [json.loads(line) for line in kept]
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(len(found), options.tries):
            one = one_try(Path(scratch), number, options.launches)
            found.append(one)
            if options.out:
                with options.out.open("a") as file:
                    print(json.dumps(one), file=file)
            interval = "unknown" if one["low"] is None else f"{one['low'] - 1:+.1%} to {one['high'] - 1:+.1%}"
            print(
                f"try {number + 1}: {FAMILY} {one['change'] - 1:+.1%} ({interval}), {one['share']:.0%} of the step; "
                f"worse: {', '.join(one['worse']) or 'none'}; step: {one['step']}",
                flush=True,
            )
    hits = sum(one["worse"] == [FAMILY] for one in found)
    steps = sum(one["step"] == WORSE for one in found)
    share = min(one["share"] for one in found)
    print(f"found and attributed to {FAMILY} alone: {hits} of {len(found)}; the step itself called worse: {steps}")
    print(f"{FAMILY} takes at least {share:.0%} of the step ({LEAST_SHARE:.0%} needed)")
    return 0 if hits >= MUST * len(found) and share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
