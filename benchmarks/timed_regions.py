"""Check the regions of perfkit/profile.cuh on a GPU: each takes what the kernel saves without that stage, within 5 %.

    python benchmarks/timed_regions.py time FOLDER      # GPU and nvcc, nothing else; under a minute
    python benchmarks/timed_regions.py check FOLDER     # anywhere with perfkit

The check prints PASS or FAIL a region, and how much longer the kernel takes with its regions recorded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("arithmetic", "shared_chain", "global_chain")
LIMIT = 0.05
TIMES, REGIONS = "times.json", "timed.regions"


def main(words: list[str]) -> int:
    """Time or check, as the first word says; return the exit code."""
    if len(words) != 2 or words[0] not in ("time", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(words[1])
    return time(folder) if words[0] == "time" else check(folder)


def time(folder: Path) -> int:
    """Build and run the kernel whole, without each stage, and with its regions recorded; write the times."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {"whole": _time(folder, "whole")}
    found |= {name: _time(folder, f"without-{name}", f"-DWITHOUT={1 + place}") for place, name in enumerate(STAGES)}
    found["recorded"] = _time(folder, "recorded", "-DPERFKIT_PROFILE", file=folder / REGIONS)
    (folder / TIMES).write_text(json.dumps(found, indent=1))
    print(found)
    return 0


def check(folder: Path) -> int:
    """Print PASS or FAIL for each stage of which `folder` has the times."""
    times = json.loads((folder / TIMES).read_text())
    shown = json.loads(_run([sys.executable, "-m", "perfkit", "inspect", str(folder / REGIONS), "--json"]))
    regions = {one["name"]: one["sm_ns"] / 1e3 for one in shown["regions"]}
    whole, recorded = times["whole"], times["recorded"]
    print(f"whole {whole:.2f} µs, recorded {recorded:.2f} µs (+{recorded / whole - 1:.1%})")
    wrong = 0
    for name in STAGES:
        stage, region = whole - times[name], regions.get(name, float("nan"))
        right = abs(region / stage - 1) <= LIMIT
        wrong += not right
        print(
            f"{'PASS' if right else 'FAIL'} {name}: region {region:.2f} µs, left out {stage:.2f} µs "
            f"({region / stage - 1:+.1%})"
        )
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
