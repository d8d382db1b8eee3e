"""Whether the findings tell the story of a slow DLRM: what they promise, against what mending brings.

The three variants of the index run one after the other, on tables of 20,000 rows and without the outer product, so that
the lookup dominates. Must be reached:

- `index-hash-list` has the index as its first findings: lists made tensors, and comparison with all values.
- Each mended step is shorter by what the findings of the one before said, within 30 %.
- `--preset main` spends its step in the prediction MLP.

About 2 minutes on two idle cores. Each variant runs `--repeats` times (3), in turns; medians count. Glibc is told to
keep what is freed (`KEPT`): otherwise the results of the comparisons land on fresh pages in some processes and not in
others, of which the finding `fresh-pages` tells and no other. With --ordinary it is not told, and the sum is judged:
from `index-hash-list` to `modulus-hash` a step gets shorter by what both findings of the index and `fresh-pages` said,
less what `fresh-pages` still says at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SMALL = ["--preset", "small", "--dim", "largest=20000", "--dim", "interaction=cat"]
INDEX = ("list-to-tensor", "compare-with-all")
# variant → what is mended in it, and the variant without
MENDED = {
    "index-hash-list": ("list-to-tensor", "index-hash-tensor"),
    "index-hash-tensor": ("compare-with-all", "modulus-hash"),
}
WITHIN = 0.30
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_TOP_PAD_": "268435456"}


def run(arguments: list[str], folder: Path, kept: bool = True) -> dict[str, Any]:
    """Eager's part of the report of `perfkit run dlrm ARGUMENTS`, with freed memory kept or not."""
    command = [sys.executable, "-m", "perfkit", "run", "dlrm", *arguments, "--out", str(folder), "--overwrite"]
    environment = {**os.environ, **(KEPT if kept else {})}
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)["backends"][0]


def saving(backend: dict[str, Any], name: str) -> float:
    """What the finding of that name saves, ns a step; 0 without it."""
    return next((float(f["saving_ns"]) for f in backend["findings"] if f["name"] == name), 0.0)


def show(title: str, backend: dict[str, Any]) -> None:
    """Print the first findings."""
    print(f"\n{title}: {backend['step']['value'] / 1e6:.2f} ms a step")
    for finding in backend["findings"][:4]:
        print(f"  {finding['saving_ns'] / 1e6:8.2f} ms {finding['share']:4.0%}  {finding['name']}: {finding['title']}")


def first_is_the_index(backend: dict[str, Any]) -> bool:
    """Whether the two parts of the index stand first, and apart."""
    names = [finding["name"] for finding in backend["findings"][:2]]
    print(f"  {'PASS' if sorted(names) == sorted(INDEX) else 'MISS'}: the first two findings are {' and '.join(names)}")
    return sorted(names) == sorted(INDEX)


def as_promised(variant: str, runs: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether the next variant's step is shorter by what the finding said."""
    name, following = MENDED[variant]
    promised = statistics.median(saving(b, name) for b in runs[variant])
    before, after = (statistics.median(b["step"]["value"] for b in runs[v]) for v in (variant, following))
    ok = bool(promised) and abs((before - after) / promised - 1) <= WITHIN
    print(f"{'PASS' if ok else 'MISS'}: {name} was said to cost {promised / 1e6:.2f} ms; {variant} → {following}: "
          f"{before / 1e6:.2f} → {after / 1e6:.2f} ms, {(before - after) / 1e6:.2f} less")  # fmt: skip
    return ok


def promised_together(backend: dict[str, Any]) -> float:
    """What the index and the fresh pages cost by the findings, ns a step."""
    return sum(saving(backend, name) for name in (*INDEX, "fresh-pages"))


def together(runs: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether all that was mended saved what the findings said of it together."""
    first, last = runs["index-hash-list"], runs["modulus-hash"]
    promised = statistics.median(map(promised_together, first)) - statistics.median(map(promised_together, last))
    before, after = (statistics.median(b["step"]["value"] for b in side) for side in (first, last))
    ok = promised > 0 and abs((before - after) / promised - 1) <= WITHIN
    print(f"{'PASS' if ok else 'MISS'}: together they were said to cost {promised / 1e6:.2f} ms; index-hash-list → "
          f"modulus-hash: {before / 1e6:.2f} → {after / 1e6:.2f} ms, {(before - after) / 1e6:.2f} less")  # fmt: skip
    return ok


def main_is_prediction(folder: Path) -> bool:
    """Whether most of the time of `--preset main` outside the optimizer is the prediction MLP's."""
    backend = run(["--preset", "main", "--inference"], folder)
    show("--preset main, forward", backend)
    passes = sorted(backend["passes"], key=lambda group: -group["time_ns"])
    for group in passes:
        print(f"  {group['time_ns'] / 1e6:8.2f} ms {group['share']:4.0%}  {group['key']}")
    ok = passes[0]["key"] == "prediction"
    print(f"  {'PASS' if ok else 'MISS'}: the prediction MLP takes most")
    return ok


def main() -> int:
    """Run and print; 1 when something is not as said above."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ordinary", action="store_true", help="glibc as it is; the sum of the findings is judged")
    chosen = parser.parse_args()
    variants = ("index-hash-list", "index-hash-tensor", "modulus-hash")
    runs: dict[str, list[dict[str, Any]]] = {variant: [] for variant in variants}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(chosen.repeats):
            for variant in variants:
                arguments = [*SMALL, "--variant", variant]
                runs[variant].append(run(arguments, Path(folder) / "run", kept=not chosen.ordinary))
        for variant in variants:
            show(f"{' '.join(SMALL)} --variant {variant}", runs[variant][-1])
            if variant == variants[0]:
                ok = first_is_the_index(runs[variant][-1])
        print()
        promises = [together(runs)] if chosen.ordinary else [as_promised(variant, runs) for variant in MENDED]
        ok &= all(promises)
        ok &= main_is_prediction(Path(folder) / "run")
    return int(not ok)


if __name__ == "__main__":
    sys.exit(main())
