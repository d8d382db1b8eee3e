"""Measure the share of kernel time that is placed on the logical tree, backend by backend. About five minutes on two
cores.

Must be reached: 97 % of all kernel time of a training step of GPT-2 124M has a pass, a module and an operator, on every
backend that runs here. Each backend runs in a fresh process: one step to compile and settle, two under torch.profiler.

    python benchmarks/placement.py
    python benchmarks/placement.py --preset tiny --backend eager,llmc
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from perfkit import backends
from perfkit.workloads import find, resolve_settings

LIMIT = 0.97
BACKENDS = "eager,compile,thunder,thunder-llmc,llmc,kernels,triton"


def main() -> int:
    """Measure and print; return 1 where a backend misses the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--backend", default=BACKENDS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        return _one(chosen.one, chosen.preset, chosen.device)
    settings = resolve_settings(find("gpt2"), preset=chosen.preset, device=chosen.device)
    print(f"{'backend':<14}{'placed':>8}{'pass':>8}{'module':>8}{'operator':>10}   by what", flush=True)
    missed = 0
    for name in chosen.backend.split(","):
        if why := backends.get(name).unavailable(settings):
            print(f"{name:<14}{why}")
            continue
        command = [sys.executable, __file__, "--one", name, "--preset", chosen.preset, "--device", chosen.device]
        missed += subprocess.run(command, check=False).returncode != 0
    print(f"limit {LIMIT:.0%}: {'missed' if missed else 'reached'}")
    return int(missed > 0)


def _one(name: str, preset: str, device: str) -> int:
    """Profile one backend in this process, and print its line."""
    from perfkit.run.worker import Worker
    from perfkit.run_folder import KERNELS
    from perfkit.table import KernelTable
    from perfkit.tree.places import NOT_PLACED, places

    worker = Worker(lambda _: None)
    worker.prepare(resolve_settings(find("gpt2"), preset=preset, device=device), name)
    worker.settle(1)
    with tempfile.TemporaryDirectory() as folder:
        worker.profile(folder, 2)
        frame = KernelTable.load(Path(folder) / KERNELS).frame
    frame = frame[frame["step"].notna()]
    found = places(frame)
    ns = frame["duration_ns"].to_numpy()[found["row"]] * found["share"]
    known = [found["pass"] != NOT_PLACED, found["module"].notna(), found["operator"].notna()]
    placed, *parts = (float(ns[k].sum() / ns.sum()) for k in (known[0] & known[1] & known[2], *known))
    by = (ns.groupby(found["placed_by"]).sum() / ns.sum()).sort_values(ascending=False)
    evidence = ", ".join(f"{word} {share:.1%}" for word, share in by.items() if share >= 0.0005)
    print(f"{name:<14}{placed:>8.2%}{parts[0]:>8.2%}{parts[1]:>8.2%}{parts[2]:>10.2%}   {evidence}", flush=True)
    return int(placed < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
