"""Run the tests that depend on torch with another version of it, in an environment made for that and removed after.

    python -m tools.torch_versions 2.14.1 [--python python3.12] [--only thunder,kernels] [--keep FOLDER]

The environment has the pinned versions of everything else; `--latest` takes the newest of everything. What each group
of tests gave is kept in perfkit/tested.json, from which docs/versions.md is made.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.gpu_check import digests
from perfkit import tested

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "run,data,traces,ncu,integrations,dev"
# Groups of tests, by patterns of their files; a file belongs to the first group that has it.
GROUPS = {
    "thunder": ("backends/test_thunder*.py", "backends/test_llmc_on_a_gpu.py", "workloads/test_compilers.py"),
    "inductor": (
        "backends/test_compile.py", "backends/test_inductor*.py", "backends/test_provenance.py", "inspection/*.py",
    ),
    "backends": ("backends/*.py",),
    "capture": ("capture/*.py", "run/*.py"),
    "programs": ("capture/agent/*.py",),
    "readers": ("readers/test_captured.py", "readers/test_join_real.py", "readers/test_real*", "readers/test_kineto*"),
    "kernels": ("kernels/*.py",),
    "cost": ("cost/*.py",),
}  # fmt: skip
LEFT_OUT = "not full and not browser and not network"
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?= - |$))?)", re.MULTILINE)
_COUNTS = re.compile(r"(\d+) passed, \d+ failed, (\d+) skipped")


def files(group: str) -> list[str]:
    """The test files of a group, as paths from the repository's root."""
    taken: set[Path] = set()
    for name, patterns in GROUPS.items():
        found = {path for pattern in patterns for path in (ROOT / "tests").glob(pattern) if path.name[:5] == "test_"}
        if name == group:
            return sorted(path.relative_to(ROOT).as_posix() for path in found - taken)
        taken |= found
    raise KeyError(group)


def sources() -> str:
    """A digest of what these tests test."""
    return hashlib.sha256(json.dumps(digests(), sort_keys=True).encode()).hexdigest()[:16]


def install(folder: Path, torch: str, python: str, latest: bool) -> Path:
    """Make the environment, and return its Python. Raises `CalledProcessError` when pip cannot."""
    environment = {**os.environ, "TORCH": f"torch=={torch}", "PYTHON": python, "PIP_NO_CACHE_DIR": "1"}
    subprocess.run(["sh", "tools/install.sh", str(folder), EXTRAS], cwd=ROOT, env=environment, check=True)
    made = folder / "bin" / "python"
    if latest:
        pip = [str(made), "-m", "pip", "install", "--upgrade", "--upgrade-strategy", "eager", f"torch=={torch}"]
        subprocess.run([*pip, "-e", f".[{EXTRAS}]"], cwd=ROOT, env=environment, check=True)
    return made


def run(python: Path, group: str) -> tested.Outcome:
    """The outcome of one group's tests under `python`, which may run long; what pytest prints is shown."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PERFKIT_TEST_COUNTS": str(counts),
            "PERFKIT_CACHE": folder,
        }
        environment |= {"PATH": f"{python.parent}:{os.environ['PATH']}", "COLUMNS": "1000"}
        command = [str(python), "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", LEFT_OUT]
        process = subprocess.Popen(
            [*command, *files(group)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            sys.stdout.write(line)
            lines.append(line)
        process.wait()
        return outcome("".join(lines), counts.read_text() if counts.is_file() else "")


def outcome(printed: str, counts: str) -> tested.Outcome:
    """The outcome of a session of pytest, from what it printed and its counts. Raises `ValueError` without counts."""
    found = _COUNTS.search(counts)
    if found is None:
        raise ValueError("pytest did not come to its end: nothing is kept of this group")
    failed = tuple(sorted(set(_FAILED.findall(printed.rpartition("short test summary")[2]))))
    today = datetime.date.today().isoformat()
    return tested.Outcome(passed=int(found[1]), skipped=int(found[2]), failed=failed, date=today, sources=sources())


def keep(torch: str, python: str, groups: Mapping[str, tested.Outcome], file: Path = tested.FILE) -> None:
    """Put these outcomes in the place of older ones of the same environment (MAJOR.MINOR of torch and of Python)."""
    rows = tested.read(file) if file.is_file() else []
    key = (tested.minor(torch), tested.minor(python))
    same = [row for row in rows if (tested.minor(row.torch), tested.minor(row.python)) == key]
    older = {name: old for row in same for name, old in row.groups.items()}
    now = tested.TestedEnvironment(torch=torch, python=python, groups={**older, **groups})
    others = [row for row in rows if row not in same]
    file.write_bytes(msgspec.json.format(msgspec.json.encode([*others, now]), indent=1) + b"\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environment, run the groups, keep what they gave; return 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", help="the version, such as 2.14.1")
    parser.add_argument("--python", default="", help="the interpreter; without it, as `make install` chooses")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups of tests, by comma")
    parser.add_argument("--keep", type=Path, help="a folder for the environment, which stays and is used again")
    parser.add_argument("--latest", action="store_true", help="the newest of everything else, and keep no result")
    given = parser.parse_args(arguments)
    only = given.only.split(",")
    if unknown := [name for name in only if name not in GROUPS]:
        parser.error(f"unknown group {unknown[0]}: {', '.join(GROUPS)}")
    with tempfile.TemporaryDirectory(prefix="torch-") as temporary:
        python = install((given.keep or Path(temporary) / "env").absolute(), given.torch, given.python, given.latest)
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
        found = {}
        for name in only:
            found[name] = run(python, name)
            if not given.latest:
                keep(given.torch, version, {name: found[name]})
    for name, gave in found.items():
        print(f"{name}: {gave.passed} passed, {len(gave.failed)} failed, {gave.skipped} skipped")
    print("Now `python -m tools.pages` writes docs/versions.md.")
    return int(any(gave.failed for gave in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
