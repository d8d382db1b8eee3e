"""Compare what perfkit reads in any profiles with plain witnesses, and list sentences of its reports worth a look.

    python benchmarks/reading/strangers.py FOLDER…      # without any: the fixtures of the tests

Each file of the folders that perfkit reads, or refuses, gives one line: what agrees with its witness
(`benchmarks/reading/witnesses.py`), or what does not. It needs no network. Exit code 1 where anything disagrees or
ends in a traceback; sentences worth a look change nothing.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

import perfkit  # noqa: E402
from benchmarks.reading import witnesses  # noqa: E402
from perfkit.errors import PerfkitError  # noqa: E402
from perfkit.render import json as rendered  # noqa: E402
from perfkit.render import terminal  # noqa: E402

ENDINGS = (".json", ".gz", ".ncu-rep", ".ncu-repz", ".nsys-rep", ".sqlite", ".csv", ".pickle", ".txt", ".hatchet")
WITNESS = "--witness"  # FILE: print what the witness of one file counts
ON_GPU = ("gpu_kernel", "memcpy", "memset", "graph")
_SHARE = re.compile(r"(?<![+−\-\d.,])(\d[\d,]*(?:\.\d+)?) ?%")
_EXPONENT = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e[+-]?\d+\b")
_MOST_OTHER = 0.05


def files_of(folders: list[Path]) -> Iterator[Path]:
    """The profiles in the folders, by name; a path that is a file is one."""
    for folder in folders:
        if folder.is_file():
            yield folder
        else:
            yield from sorted(p for p in folder.rglob("*") if p.is_file() and p.name.endswith(ENDINGS))


def seen_by_perfkit(table: Any) -> dict[str, Any]:
    """Return the quantities of a witness by the names of perfkit's table."""
    frame, facts = table.frame, table.facts
    gpu = frame[frame["kind"].isin(ON_GPU)]
    if facts.get("tool") == "ncu":
        return {"kernels": len(frame), "kernel_ns": float(frame["duration_ns"].sum())}
    if gpu.empty:
        return {"operators_ns": float(frame["duration_ns"].sum())}
    kernels = gpu[gpu["kind"] == "gpu_kernel"]
    copies = facts.get("copies", [])
    steps = gpu["step"].dropna().astype(int)
    timed = gpu.dropna(subset=["start_ns"])
    starts = timed["start_ns"].astype(float)
    return {
        "kernels": len(kernels),
        "activities": len(gpu),
        "kernel_ns": float(kernels["duration_ns"].sum()),
        "busy_ns": witnesses.union(zip(starts, starts + timed["duration_ns"].fillna(0.0), strict=True)),
        "collectives": int(kernels["family"].eq("collective").sum()),
        "copy_bytes": sum(c["bytes"] for c in copies) if None not in [c["bytes"] for c in copies] else None,
        "launched_by_step": [int((steps == i).sum()) for i in range(facts.get("steps", 0))],
    }


def disagreements(witness: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """Quantities that both know and that differ: counts at all, times and bytes beyond rounding."""
    found = []
    for name, value in witness.items():
        ours = seen.get(name)
        if name == "operators_ns":
            if ours is not None and ours > value * 1.001 + 1000:
                found.append(f"rows take {ours:.0f} ns, operators {value:.0f}")
        elif isinstance(value, list):
            if ours and ours != value:
                found.append(f"{name} {ours} ≠ {value}")
        elif name == "collectives":  # a witness knows those of NCCL and RCCL alone
            if ours is not None and ours < value:
                found.append(f"{name} {ours} < {value}")
        elif not _same(name, ours, value, witness.get("activities", 0) + 1):
            found.append(f"{name} {ours} ≠ {value}")
    return found


def _same(name: str, ours: Any, value: float, rounding_ns: float) -> bool:
    if ours is None or name in ("kernels", "activities"):
        return bool(ours == value)
    return math.isclose(ours, value, rel_tol=1e-6, abs_tol=rounding_ns)


def worth_a_look(report: Any) -> list[str]:
    """Sentences and figures of a report that a performance engineer would question."""
    content = json.loads(rendered.render(report))
    found = []
    for backend in content["backends"]:
        account = backend["accounting"] or {}
        step = account.get("timed_step_ns") or account.get("profiled_step_ns")
        for finding in backend["findings"]:
            if step and (finding["saving_ns"] or 0) > step:
                found.append(f"a saving above the step: {finding['title']}")
            found += _odd(f"{finding['title']}. {finding['evidence']}")
        if step and (account.get("other_ns") or 0) > _MOST_OTHER * step:
            found.append(f"other is {account['other_ns'] / step:.0%} of the step")
        for family in backend["families"]:
            if family["key"] == "other" and family["share"] > _MOST_OTHER:
                found.append(f"family other has {family['share']:.0%} of the kernel time")
        found += [
            f"efficiency {row['efficiency']:.0%}: {row['key'][:80]}"
            for row in backend["kernels"]
            if (row["efficiency"] or 0) > 1
        ]
    for sentence in [*content["verdict"], *content["warnings"]]:
        found += _odd(sentence)
    return [*found, *_alike(terminal.render(report))]


def _odd(text: str) -> list[str]:
    found = [f"a share above 100 %: {text}" for share in _SHARE.findall(text) if float(share.replace(",", "")) > 100]
    return [*found, *([f"an exponent: {text}"] if _EXPONENT.search(text) else [])]


def _alike(text: str) -> list[str]:
    """Cropped names that stand twice in one table."""
    found = []
    for block in text.split("\n\n"):
        cells = Counter(re.split(r" {2,}", line.strip())[0] for line in block.splitlines() if "…" in line)
        found += [f"{count} rows called {name!r}" for name, count in cells.items() if count > 1 and "…" in name]
    return found


def judge(path: Path) -> tuple[str, bool, list[str]]:
    """The line about a file, whether it is in order, and what is worth a look."""
    try:
        reading = perfkit.read(path)
        report = reading.report
    except PerfkitError as error:
        return f"refused: {error.message.replace(str(path), 'it')}", True, []
    except Exception as error:
        return f"TRACEBACK {type(error).__name__}: {error}", False, []
    # In a process of its own, for NVIDIA's reader may die of a damaged report.
    done = subprocess.run([sys.executable, __file__, WITNESS, str(path)], capture_output=True, text=True)
    look = worth_a_look(report)
    if done.returncode:
        return f"no witness ({(done.stderr.strip().splitlines() or ['died'])[-1][:80]})", True, look
    witness = json.loads(done.stdout)
    differ = [d for table in reading.tables.values() for d in disagreements(witness, seen_by_perfkit(table))]
    if differ:
        return f"DISAGREES: {'; '.join(differ)}", False, look
    return f"agrees: {', '.join(f'{k} {v:.0f}' for k, v in witness.items() if not isinstance(v, list))}", True, look


def main(folders: list[Path]) -> int:
    """Judge every file; return 1 where one disagrees or ends in a traceback."""
    bad = 0
    looks: list[tuple[Path, str]] = []
    for path in files_of(folders):
        line, good, look = judge(path)
        bad += not good
        looks += [(path, sentence) for sentence in dict.fromkeys(look)]
        print(f"{path}: {line}", flush=True)
    print(f"\n{bad} disagree. Worth a look: {len(looks)}")
    for path, sentence in looks:
        print(f"{path.name}: {sentence}")
    return int(bad > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == [WITNESS]:
        print(json.dumps(witnesses.of_file(Path(sys.argv[2]))))
    else:
        sys.exit(main([Path(word) for word in sys.argv[1:]] or [ROOT / "tests" / "fixtures"]))
