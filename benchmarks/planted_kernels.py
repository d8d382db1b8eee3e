"""Check that perfkit's first finding names the line of a fault planted into a kernel.

    python benchmarks/planted_kernels.py capture FOLDER     # GPU, nvcc and ncu: a report of each kernel, a minute
    python benchmarks/planted_kernels.py check FOLDER       # anywhere with perfkit[ncu]

Names of faults after FOLDER choose some of them.

The kernels are in planted_kernels.cu, each with a healthy twin, whose report must not have the same finding. The check
prints PASS or FAIL a kernel and ends with exit code 1 where one fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".cu")
# The rule whose finding must name the line, and lines beside the marked one that say the same.
RULES = {
    "stride": "uncoalesced",
    "conflict": "bank-conflicts",
    "spill": "spills",
    "atomics": "atomics",
    "uneven": "imbalance",
    "barrier": "barrier",
    "prologue": "prologue",
    "product": "tensor-idle",
}
HEALTHY = "_healthy"


def main(words: list[str]) -> int:
    """Capture or check, as the first word says; return the exit code."""
    if len(words) < 2 or words[0] not in ("capture", "check") or not RULES.keys() >= {*words[2:]}:
        print(__doc__, file=sys.stderr)
        return 2
    folder, names = Path(words[1]), words[2:] or [*RULES]
    return capture(folder, names) if words[0] == "capture" else check(folder, names)


def capture(folder: Path, names: list[str]) -> int:
    """Write a report of one launch of each kernel, and what ncu itself prints of its lines."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "planted"
    _run(["nvcc", "-O3", "-arch=sm_90", "-lineinfo", str(SOURCE), "-o", str(program)])
    for name in [name + twin for name in names for twin in ("", HEALTHY)]:
        report = folder / f"{name}.ncu-rep"
        options = ["--clock-control", "none", "--set", "full", "--import-source", "yes", "--launch-count", "1"]
        _run(["ncu", *options, "-k", name, "-f", "-o", str(report), str(program), name])
        page = ["--page", "source", "--csv", "--print-source", "cuda,sass"]
        printed = subprocess.run(["ncu", "-i", str(report), *page], capture_output=True, text=True, check=False)
        (folder / f"{name}.source.csv").write_text(printed.stdout or printed.stderr)
        print(f"captured {name}: {report.stat().st_size} bytes", flush=True)
    return 0


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"FAIL {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def check(folder: Path, names: list[str]) -> int:
    """Print PASS or FAIL for each of these kernels."""
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda name: judged(folder, name), names))
    print("\n".join(said))
    return int(any(text.startswith("FAIL") for text in said))


def judged(folder: Path, name: str) -> str:
    """Return the verdict on a kernel and its twin as a line of text."""
    found, healthy = _findings(folder / f"{name}.ncu-rep"), _findings(folder / f"{name}{HEALTHY}.ncu-rep")
    first: dict = found[0] if found else {"name": "no finding", "lines": []}  # type: ignore[type-arg]
    place = [(Path(line["file"]).name, line["line"]) for line in first["lines"][:1]]
    right = first["name"] == RULES[name] and bool(place) and place[0] in _planted(name)
    quiet = all(one["name"] != RULES[name] for one in healthy)
    where = ", ".join(f"{file}:{line}" for file, line in place) or "no line"
    return f"{'PASS' if right and quiet else 'FAIL'} {name}: {first['name']} at {where}; twin: " + (
        ", ".join(one["name"] for one in healthy) or "no finding"
    )


def _findings(report: Path) -> list[dict]:  # type: ignore[type-arg]
    command = [sys.executable, "-m", "perfkit", "report", str(report), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"FAIL {' '.join(command)}: {done.stderr}")
    found: list[dict] = json.loads(done.stdout)["backends"][0]["findings"]  # type: ignore[type-arg]
    return found


def _planted(name: str) -> list[tuple[str, int]]:
    """The marked lines of a kernel."""
    lines = SOURCE.read_text().splitlines()
    return [(SOURCE.name, number) for number, text in enumerate(lines, 1) if text.endswith(f"// planted {name}")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
