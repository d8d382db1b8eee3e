"""Predicted steps by number of workers against real ones: `python benchmarks/measuring/loader_workers.py [--turns 3]`.

A small program whose workers sleep, compute, or read files is captured with each of some numbers of workers, on a GPU
where there is one. Its step with another number is predicted from each capture, and measured where that number runs.
Exit code 1 beyond 15 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 0.15
NUMBERS = (1, 2, 4)
PROGRAM = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
kind, workers, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"

class Samples(Dataset):
    def __len__(self):
        return 16 * 60
    def __getitem__(self, i):
        if kind == "sleeps":
            time.sleep(0.003)
        elif kind == "computes":
            sum(k * k % 7 for k in range(20000))
        else:
            open(path, "rb").read()
        return torch.full((16,), i / 960)

if __name__ == "__main__":
    model = torch.nn.Linear(16, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps, begun = [], None
    for x in DataLoader(Samples(), 16, num_workers=workers, pin_memory=device == "cuda"):
        optimizer.zero_grad()
        model(x.to(device, non_blocking=True)).square().mean().backward()
        optimizer.step()
        time.sleep(0.008)
        now = time.perf_counter()
        steps += [now - begun] if begun else []
        begun = now
    print(sum(steps[25:]) / len(steps[25:]) * 1e3)
"""


def captured(kind: str, workers: int, folder: Path) -> tuple[float, float, dict[int, float]]:
    """The mean step of the program's second half, where nothing watches it any more, that of the timed steps, and the
    predicted one by number of workers; all in ms."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "file").write_bytes(bytes(4 << 20))
    command = [sys.executable, "-m", "perfkit", "capture", "--out", str(folder / "run"), "--overwrite", "--"]
    program = [sys.executable, str(folder / "program.py"), kind, str(workers), str(folder / "file")]
    done = subprocess.run([*command, *program], check=True, capture_output=True, text=True)
    (backend,) = json.loads((folder / "run" / "report.json").read_text())["backends"]
    (known,) = backend["loading"]
    predicted = {one["workers"]: one["step_ns"] / 1e6 for one in known["predictions"]}
    return float(done.stdout), known["step_ns"] / 1e6, predicted


def main() -> None:
    """Print a line for each prediction, and exit with 1 where one is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["sleeps", "computes", "reads"])
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    off = False
    with tempfile.TemporaryDirectory() as scratch:
        for kind in asked.kinds:
            runs = {n: [captured(kind, n, Path(scratch)) for _ in range(asked.turns)] for n in NUMBERS}
            real = {n: statistics.median(found[0] for found in runs[n]) for n in NUMBERS}
            for n in NUMBERS:
                for other in NUMBERS:
                    said = [found[2][other] for found in runs[n] if other in found[2]]
                    step = statistics.median(said) if said else float("nan")
                    error = step / real[other] - 1
                    off |= abs(error) > LIMIT
                    what = f"{kind}: {other} workers predicted from {n}"
                    print(f"{what}: {step:.2f} ms, measured {real[other]:.2f}, {error:+.1%}", flush=True)
    sys.exit(int(off))


if __name__ == "__main__":
    main()
