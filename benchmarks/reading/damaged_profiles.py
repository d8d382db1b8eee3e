"""Read damaged profiles: 2000 mutations of each format.

For each format: how many are refused with a sentence, read with the right numbers, read with a warning that the
original does not have, and read with numbers, kernels or names that differ without one. Must reach, or the exit code
is 1: no traceback, no read over 60 s, memory of this process under 1 GB. Takes 12 minutes of a core; `--count N` for
fewer, FORMAT names for some.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from perfkit.errors import PerfkitError  # noqa: E402
from perfkit.readers import read  # noqa: E402
from perfkit.readers.ncu import container  # noqa: E402
from perfkit.table import COLUMNS, REAL, TEXT, KernelTable  # noqa: E402
from tests.support.packed import ncu_file  # noqa: E402
from tests.support.readers import mutations, nsys_exports  # noqa: E402

SLOWEST, MOST_MEMORY = 60.0, 1000.0  # seconds of one read, MB
NAMES = {"name", "short_name", "family", "range", "operator", "module", "shapes"}


def export(folder: Path) -> bytes:
    """A small export of Nsight Systems, as the bytes of its sqlite file."""
    path = folder / "made.sqlite"
    nsys_exports.write(path, nsys_exports.two_steps())
    return path.read_bytes()


Mutate = Callable[[bytes, random.Random, Path], tuple[str, bytes]]
REPORTS = ["metrics", "basic", "metrics", "basic", "full"]  # a full one takes longest
FORMATS: dict[str, tuple[str, list[str], Mutate]] = {
    "ncu-rep": (".ncu-rep", [f"kernels-{n}.ncu-rep" for n in REPORTS], lambda d, r, _: mutations.of_report(d, r)),
    "ncu-raw-csv": (".csv", ["kernels-full.raw.csv", "kernels-basic.raw.csv"], lambda d, r, _: mutations.of_page(d, r)),
    "ncu-details-csv": (
        ".csv",
        ["kernels-full.details.csv", "kernels-basic.details.csv"],
        lambda d, r, _: mutations.of_page(d, r),
    ),
    "nsys-sqlite": (".sqlite", ["nsys"], mutations.of_database),
}


def numbers(table: KernelTable) -> dict[str, list[float]]:
    """Every numeric column of the table, and the ceilings of its rows, by name."""
    found = {c.name: table.frame[c.name].astype(float).tolist() for c in COLUMNS if c.dtype in (REAL, "Int64")}
    ceilings = {
        f"roof {k}": [math.nan if v is None else v for v in vs] for k, vs in table.facts.get("row_ceilings", {}).items()
    }
    return {**found, **ceilings}


def differs(one: list[float], other: list[float]) -> bool:
    """Return whether a shown number differs from the true one; an absent one is not shown."""
    return any(a != b and not math.isnan(a) for a, b in zip(one, other, strict=True))


def judge(table: KernelTable, original: KernelTable) -> str:
    """Return how the report of a damaged file compares with the truth."""
    if set(table.warnings) - set(original.warnings):
        return "read, warned"
    if len(table) != len(original):
        return "SILENT: kernels"
    mine, true = numbers(table), numbers(original)
    if any(differs(mine.get(name, [math.nan] * len(table)), true[name]) for name in true):
        return "SILENT: numbers"
    if any(
        math.isnan(a) > math.isnan(b) for name in true for a, b in zip(mine.get(name, ()), true[name], strict=False)
    ):
        return "read, less"
    words = [c.name for c in COLUMNS if c.dtype in (TEXT, "category")]
    if not table.frame[words].astype(object).equals(original.frame[words].astype(object)):
        return "silent: names"
    return "read, right"


def outcome(path: Path, original: KernelTable) -> str:
    """Return the outcome of reading the damaged file at `path`; an error that is not a sentence is printed and fails
    it."""
    try:
        if path.suffix == ".ncu-rep":
            container.check(path)  # what it refuses needs no process
        return judge(read(path), original)  # type: ignore[arg-type]
    except PerfkitError:
        return "refused"
    except Exception:
        traceback.print_exc()
        return "TRACEBACK"


def run(name: str, count: int, seed: int, keep: Path | None) -> bool:
    """Read `count` mutations of the format `name` and print what they came to; return whether the limits hold.

    The silent ones go to `keep`.
    """
    suffix, sources, mutate = FORMATS[name]
    tally: Counter[str] = Counter()
    slowest, silent = 0.0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"profile{suffix}"
        good: dict[str, tuple[bytes, KernelTable]] = {}
        for source in dict.fromkeys(sources):
            data = export(Path(folder)) if source == "nsys" else ncu_file(source)
            path.write_bytes(data)
            good[source] = data, read(path)  # type: ignore[assignment]
        for index in range(count):
            chance = random.Random(f"{seed} {name} {index}")
            data, original = good[sources[index % len(sources)]]
            kind, damaged = mutate(data, chance, Path(folder))
            path.write_bytes(damaged)
            start = time.perf_counter()
            said = outcome(path, original) if damaged != data else "unchanged"
            slowest = max(slowest, time.perf_counter() - start)
            tally[said] += 1
            if said.startswith(("SILENT", "TRACE")):
                silent[f"{said}: {kind}"] += 1
                if keep:
                    (keep / f"{name}-{index}-{kind.replace(' ', '_')}{suffix}").write_bytes(damaged)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name}: {count} mutations: {', '.join(f'{v} {k}' for k, v in tally.most_common())}")
    print(f"  slowest {slowest:.1f} s, peak of this process {peak:.0f} MB; {dict(silent.most_common())}", flush=True)
    return not tally["TRACEBACK"] and slowest <= SLOWEST and peak < MOST_MEMORY


def main() -> int:
    """Print what became of each format's mutations; 1 when one made a traceback, took too long or too much memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", default=list(FORMATS))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the files that were read wrongly without a warning")
    arguments = parser.parse_args()
    if unknown := set(arguments.formats) - set(FORMATS):
        parser.error(f"no format {', '.join(sorted(unknown))}; there are {', '.join(FORMATS)}")
    held = [run(name, arguments.count, arguments.seed, arguments.keep) for name in arguments.formats]
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
