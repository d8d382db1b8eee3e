"""Do real torch.profiler traces give the same table at any layout of their JSON?

    python benchmarks/reading/kineto_layouts.py TRACE.json.gz … --count 200

The traces are written at `--count` random layouts (`tests/support/readers/layouts.py`): compact, indented, with keys in
any order, with other keys around the events, with a byte order mark, compressed or not. They are read in pieces of
several sizes. Each must give the table, the facts and the warnings of the file itself. Exits with 1 where one does
not, and says which. 200 layouts of six traces of 20 to 110 thousand events take about ten minutes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from perfkit.errors import PerfkitError  # noqa: E402
from perfkit.readers.kineto.decode import stream  # noqa: E402
from perfkit.readers.kineto.trace import read_trace  # noqa: E402
from perfkit.table import KernelTable  # noqa: E402
from tests.support.readers.layouts import layout  # noqa: E402


def differs(path: Path, expected: KernelTable) -> str:
    """How the trace at `path` is not read as `expected`, "" where it is."""
    try:
        found = read_trace(path)
    except PerfkitError as error:
        return str(error)
    same = (found.facts, found.warnings) == (expected.facts, expected.warnings)
    return "" if same and found.frame.equals(expected.frame) else "another table"


def tried(path: Path, count: int, seed: int, folder: Path) -> int:
    """Return the number of `count` layouts of the trace at `path` that are not read as the file itself."""
    usual = stream.PIECE
    trace: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    expected, wrong, begun = read_trace(path), 0, time.monotonic()
    for i in range(count):
        how = layout(random.Random(f"{path.name} {seed} {i}"))
        other = folder / "t.json"
        other.write_bytes(how.write(trace))
        stream.PIECE = how.piece
        problem = differs(other, expected)
        stream.PIECE = usual
        if problem:
            wrong += 1
            print(f"{path.name}, {how}: {problem}")
    seconds = time.monotonic() - begun
    print(f"{path.name}: {count - wrong} of {count} layouts give the same {len(expected)} rows ({seconds:.0f} s)")
    return wrong


def main() -> int:
    """Read the traces in other layouts of the same JSON; 1 when a table differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    parser.add_argument("--count", type=int, default=200, help="layouts of all traces together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    share, more = divmod(options.count, len(options.traces))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for i, path in enumerate(options.traces):
            wrong += tried(path, share + (i < more), options.seed, Path(folder))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
