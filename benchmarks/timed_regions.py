"""Check the regions of perfkit/profile.cuh on a GPU: each takes what the kernel saves without that stage, within 5 %.

    python benchmarks/timed_regions.py FOLDER       # needs a GPU and nvcc; under a minute

Prints PASS or FAIL a region, and how much longer the kernel takes with its regions recorded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("arithmetic", "shared_chain", "global_chain")
LIMIT = 0.05


def main(words: list[str]) -> int:
    """Build, run and judge; return the exit code."""
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    whole = _time(folder, "whole")
    shorter = [_time(folder, f"without-{name}", f"-DWITHOUT={1 + place}") for place, name in enumerate(STAGES)]
    file = folder / "timed.regions"
    recorded = _time(folder, "recorded", "-DPERFKIT_PROFILE", file=file)
    shown = json.loads(_run([sys.executable, "-m", "perfkit", "inspect", str(file), "--json"]))
    found = {one["name"]: one["sm_ns"] / 1e3 for one in shown["regions"]}
    print(f"whole {whole:.2f} µs, recorded {recorded:.2f} µs (+{recorded / whole - 1:.1%})")
    wrong = 0
    for name, without in zip(STAGES, shorter, strict=True):
        stage, region = whole - without, found.get(name, float("nan"))
        right = abs(region / stage - 1) <= LIMIT
        wrong += not right
        print(f"{'PASS' if right else 'FAIL'} {name}: region {region:.2f} µs, left out {stage:.2f} µs "
              f"({region / stage - 1:+.1%})")  # fmt: skip
    return int(wrong > 0)


def _time(folder: Path, name: str, *options: str, file: Path | None = None) -> float:
    program, source = folder / name, Path(__file__).with_suffix(".cu")
    include = ROOT / "perfkit/kernels/include"
    _run(["nvcc", "-O3", "-arch=sm_90", "-I", str(include), *options, str(source), "-o", str(program)])
    return float(_run([str(program), *([str(file)] if file else [])]))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"FAIL {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
