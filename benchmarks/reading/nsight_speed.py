"""How fast `perfkit report` reads captures of Nsight Compute and Nsight Systems, as whole processes.

Three kernels of a full report (goal: under 1.0 s), 200 kernels made by repeating its results (under 6 s, no process
above 450 MB), and an export of nsys with 4000 kernels. Runs are interleaved; printed are the best wall time, the least
CPU time of all processes together and the peak of the largest process: on a busy machine the CPU time says more. Takes
a minute on an idle machine. `--runs N`; with PERFKIT_SAMPLES set, the report and the export there are read.
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
sys.path.append(str(ROOT))

from tests.support.packed import ncu_file  # noqa: E402
from tests.support.readers import mutations, nsys_exports  # noqa: E402

GH200 = "ncu/gh200-full-2025.1-3kernels.ncu-rep"
T4 = "nsys/t4-cupy-nvtx-schema3.20.2.sqlite"


def results_of(data: bytes, count: int) -> bytes:
    """The report with its results repeated (or cut) to `count`, each with a number of its own."""
    head, blocks = mutations.blocks(data)
    full = [i for i, (header, _) in enumerate(blocks) if any(n == 2 and c != b"\0" for n, _, c in header)]
    last = max(full) + 1
    kept = [block for i, block in enumerate(blocks[:last]) if i not in full[count:]]
    for number in range(len(full), count):
        header, messages = blocks[full[number % len(full)]]
        renumbered = [
            mutations.build(
                [(n, w, mutations.varint(10**6 + number) if n == 2 else c) for n, w, c in mutations.parse(m)]
            )
            for m in messages
        ]
        kept.append(([(n, w, c) for n, w, c in header if n != 4], renumbered))
    return mutations.report(head, [*kept, *blocks[last:]])


def export(path: Path, kernels: int) -> None:
    """Write an export of Nsight Systems with `kernels` kernels, 1 µs apart."""
    strings = nsys_exports.Strings()
    tables = nsys_exports.two_steps()
    tables[nsys_exports.KERNEL] = [
        nsys_exports.kernel(strings, f"kernel_{i % 50}", 1000 * i, 1000 * i + 800, i) for i in range(kernels)
    ]
    tables[nsys_exports.CALL] = [
        nsys_exports.call(strings, "cudaLaunchKernel_v7000", 1000 * i - 500, 1000 * i - 400, i) for i in range(kernels)
    ]
    tables["StringIds"] = strings.rows()
    nsys_exports.write(path, tables)


def files(folder: Path) -> dict[str, Path]:
    """The profiles to read, by name; made ones where the samples are missing."""
    samples = Path(os.environ.get("PERFKIT_SAMPLES", "/nonexistent"))
    fixture = ncu_file("kernels-full.ncu-rep")
    data = (samples / GH200).read_bytes() if (samples / GH200).exists() else fixture
    found = {"ncu, 3 kernels": folder / "three.ncu-rep", "ncu, 200 kernels": folder / "many.ncu-rep"}
    found["ncu, 3 kernels"].write_bytes(results_of(data, 3))
    found["ncu, 200 kernels"].write_bytes(results_of(data, 200))
    found["nsys"] = samples / T4
    if not found["nsys"].exists():
        found["nsys"] = folder / "made.sqlite"
        export(found["nsys"], 4000)
    return found


_MEASURE = """
import resource, subprocess, sys, time
start = time.perf_counter()
command = [sys.executable, "-m", "perfkit", "report", sys.argv[1]]
code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def run(path: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds of all processes, and MB of the largest, of one report in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    code, wall, cpu, peak = map(float, said.stdout.split())
    if code:
        raise SystemExit(f"perfkit report {path} failed")
    return wall, cpu, peak


def main() -> None:
    """Time the readers of Nsight's files, and print wall time, CPU time (s) and peak memory of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        chosen = files(Path(folder))
        taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in chosen}
        for _ in range(count):
            for name, path in chosen.items():
                taken[name].append(run(path))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}, {count} runs each")
    for name, runs in taken.items():
        wall, cpu, peak = zip(*runs, strict=True)
        print(
            f"{name:18} wall {min(wall):5.2f} s best, {statistics.median(wall):5.2f} s median; "
            f"CPU {min(cpu):5.2f} s; largest process {max(peak):4.0f} MB"
        )


if __name__ == "__main__":
    main()
