"""Steps of one program, alone and under `perfkit capture`, at the same time: hosts change their pace within seconds.

A program calls `run(step)`. It is started twice, as `python PROGRAM FOLDER/alone0.json` and under capture as
`python PROGRAM FOLDER/captured0.json`. Both wait for each other; the one under capture takes STEPS steps, the other one
goes on until these are done. `python beside.py FOLDER` compares: of each turn (0, 1, …) the median step under capture
before and after the recording, over the median of those steps alone that lie within the same time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

STEPS, WARMUP, COLD, RECORDED = 400, 120, 20, 30  # in order: cold ones, those before, the recorded and what follows
LIMITS = {"before": 1.03, "after": 1.02}


def run(step: Callable[[], float]) -> None:
    """Take the steps, each of which returns its own seconds, and write when each ended and how long it took."""
    own = Path(sys.argv[1])
    captured = own.name.startswith("captured")
    other = own.with_name(own.name.replace("captured", "alone") if captured else own.name.replace("alone", "captured"))
    own.with_suffix(".ready").touch()
    patience = time.monotonic() + 60
    while not other.with_suffix(".ready").exists() and time.monotonic() < patience:
        time.sleep(1e-3)
    found: list[tuple[float, float]] = []
    while len(found) < STEPS if captured else not other.exists() and time.monotonic() < patience:
        took = step()
        found.append((time.time(), took))
    own.with_suffix(".part").write_text(json.dumps(found))
    own.with_suffix(".part").replace(own)


def ratios(folder: Path, span: str) -> list[tuple[float, float]]:
    """The medians of both sides of each turn, in seconds: alone, and under capture."""
    found = []
    for path in sorted(folder.glob("captured*.json")):
        alone, captured = (
            json.loads(one.read_text()) for one in (path.with_name(path.name.replace("captured", "alone")), path)
        )
        mine = captured[COLD:WARMUP] if span == "before" else captured[WARMUP + RECORDED :]
        theirs = [took for at, took in alone if mine[0][0] <= at <= mine[-1][0]]
        found.append((statistics.median(theirs), statistics.median(took for _, took in mine)))
    return found


def main() -> int:
    """Print both spans; return 1 where one passes its limit."""
    wrong = 0
    for span, limit in LIMITS.items():
        sides = ratios(Path(sys.argv[1]), span)
        each = [captured / alone for alone, captured in sides]
        middle = statistics.median(each)
        wrong += middle > limit
        print(f"{'FAIL' if middle > limit else 'OK  '} {span} the recording: {middle:.3f} (limit {limit})")
        print("     turns " + ", ".join(f"{one:.3f}" for one in each))
        print("     ms alone " + ", ".join(f"{1e3 * one:.3f}" for one, _ in sides))
        print("     ms under capture " + ", ".join(f"{1e3 * one:.3f}" for _, one in sides))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
