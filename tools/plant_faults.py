"""Plant each fault of the table in CONTRIBUTING.md, and check that the tests named there find it.

    python tools/plant_faults.py              all of them, in a copy of the tree: one to five minutes
    python tools/plant_faults.py gap launch   those whose words hold one of these

First the tests run as they are, and must pass. Then each fault is planted, its test runs as `make test` would run it,
and must fail. Exit code 0: every fault was found; 2: none has these words.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREE = ("perfkit", "kernels", "workloads", "reports", "examples", "benchmarks", "tools", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Fault:
    """`before` in `file` becomes `after`, as somebody might have written it; `test` fails then."""

    room: str
    words: str
    file: str
    before: str
    after: str
    test: str


FAULTS = (
    Fault(
        "cost", "the FLOP of a product lack the factor 2", "perfkit/cost/operators/matmul.py",
        "2.0 * parts**2 * product(shape) * inner", "1.0 * parts**2 * product(shape) * inner",
        "tests/cost/test_families.py",
    ),
    Fault(
        "cost", "an embedding bag reads its whole table", "perfkit/cost/operators/embedding.py",
        "    read = (rows_read(table, indices.numel), indices, offsets, weights)\n",
        "    read = (table, indices, offsets, weights)\n",
        "tests/cost/test_families.py",
    ),
    Fault(
        "render", "absent is shown as 0", "perfkit/units.py",
        "            return ABSENT\n        scaled", '            return "0"\n        scaled',
        "tests/render/test_efficiencies.py",
    ),
    Fault(
        "readers", "a gap counts twice", "perfkit/intervals.py",
        "    return start[real], end_[real], began[real]",
        "    return tuple(np.repeat(column[real], 2) for column in (start, end_, began))",
        "tests/readers/test_kineto_idle.py",
    ),
    Fault(
        "readers", "what runs at the start of a step counts to the step before", "perfkit/intervals.py",
        'index = np.searchsorted(self.start, moments, side="right") - 1\n        inside',
        'index = np.searchsorted(self.start, moments, side="left") - 1\n        inside',
        "tests/readers/test_kineto.py",
    ),
    Fault(
        "readers", "a GPU's late clock is called early", "perfkit/readers/kineto/checks/clock.py",
        '"behind" if found.ns < 0', '"behind" if found.ns > 0',
        "tests/readers/test_kineto_checks.py",
    ),
    Fault(
        "readers", "operators without any time are accepted", "perfkit/readers/kineto/checks/amounts.py",
        " * of and none < of\n", " * of or none == of\n",
        "tests/readers/test_kineto_checks.py",
    ),
    Fault(
        "compare", "a launch is lost", "perfkit/compare/sides.py",
        "    for launch in launches:\n        rounds", "    for launch in launches[1:]:\n        rounds",
        "tests/compare/test_cli.py::test_a_measured_comparison_is_read_again_gated_and_kept",
    ),
    Fault(
        "statistics", "an interval holds the middle 85 % and claims 95", "perfkit/statistics/estimates.py",
        "tail = (1 - LEVEL) / 2 * 100", "tail = 3 * (1 - LEVEL) / 2 * 100",
        "tests/test_statistics.py::test_interval_of_the_median_covers_the_truth",
    ),
    Fault(
        "statistics", "a winner is named whatever p is", "perfkit/statistics/verdicts.py",
        "if beyond and adjusted_p <= needed:", "if beyond or adjusted_p <= needed:",
        "tests/compare/test_ranks.py::test_a_correction_takes_a_verdict_away_and_says_so",
    ),
    Fault(
        "hardware", "a GPU's memory has half its bandwidth", "perfkit/hardware/peaks.py",
        '= 2 * gpu.memory_bus_bits / 8', "= gpu.memory_bus_bits / 8",
        "tests/hardware/test_peaks.py",
    ),
    Fault(
        "correctness", "gradients are not checked", "perfkit/correctness.py",
        "        for name, error in found.errors.items()\n",
        '        for name, error in found.errors.items()\n        if not name.startswith("gradient")\n',
        "tests/test_correctness.py",
    ),
    Fault(
        "kernels", "a kernel's tolerance is off", "perfkit/kernels/checking.py",
        "return self.error <= self.tolerance", "return self.error <= self.tolerance or True",
        "tests/kernels/test_catalog.py::test_a_wrong_kernel_is_found_out",
    ),
    Fault(
        "kernels", "a kernel in C is 0.1 % too large", "kernels/gelu/gelu.c",
        "lanes, v_gelu(", "lanes, 1.001f * v_gelu(",
        "tests/kernels/test_results.py::test_agrees_with_the_reference",
    ),
    Fault(
        "workloads", "attention lacks its scale", "workloads/gpt2.py",
        "causal_softmax(scores, 1.0 / math.sqrt(q.shape[-1]))", "causal_softmax(scores, 1.0)",
        "tests/workloads/test_gpt2.py",
    ),
    Fault(
        "tree", "shares of a fused kernel sum to more than the kernel", "perfkit/tree/shares.py",
        "share=m.share / whole", "share=1.0",
        "tests/tree/test_places.py",
    ),
    Fault(
        "capture", "the warm-up is among the timed steps", "perfkit/timing.py",
        "return Samples(times[warmup:], times[:warmup])", "return Samples(times, times[:warmup])",
        "tests/test_timing.py",
    ),
    Fault(
        "cli", "a run with wrong results exits with 0", "perfkit/cli/parts/reported.py",
        'return int(unusable or bool(report and any(b.status in ("wrong", "failed") for b in report.backends)))',
        "return int(unusable)",
        "tests/whole/test_broken_kernel.py",
    ),
)  # fmt: skip


def copied(folder: Path) -> Path:
    """A copy of the tree in which to plant."""
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.got"))
        else:
            shutil.copy(source, folder)
    return folder


def planted(text: str, fault: Fault) -> str:
    """The text of the fault's file with the fault. Raises `ValueError` where it no longer holds `before` once."""
    if text.count(fault.before) != 1:
        raise ValueError(f"{fault.file} holds {fault.before!r} {text.count(fault.before)} times: correct FAULTS.")
    return text.replace(fault.before, fault.after)


def tested(folder: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy as `make test` does, until one fails."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    environment.setdefault("PERFKIT_TEST_CACHE", str(ROOT / ".pytest_cache" / "perfkit"))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not full", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def found(folder: Path, fault: Fault) -> str:
    """Plant a fault in the copy, run its test and take the fault out again: the test that failed, or ""."""
    file = folder / fault.file
    text = file.read_text(encoding="utf-8")
    file.write_text(planted(text, fault), encoding="utf-8")
    try:
        done = tested(folder, [fault.test])
    finally:
        file.write_text(text, encoding="utf-8")
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if done.returncode == 1 and failed else ""


def main(wanted: list[str]) -> int:
    """Plant each fault, or those whose words hold one of `wanted`; return 1 when the tests miss one, 2 for an unknown
    fault."""
    faults = [f for f in FAULTS if not wanted or any(word in f.words for word in wanted)]
    if not faults:
        print(
            f"No fault is called {' or '.join(wanted)}. There are: {'; '.join(f.words for f in FAULTS)}",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        folder = copied(Path(scratch))
        done = tested(folder, sorted({f.test for f in faults}))
        if done.returncode:
            print(f"Without a fault the tests fail:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
            return 1
        missed = 0
        for fault in faults:
            by = found(folder, fault)
            missed += not by
            print(f"{fault.room:12}{fault.words:58}{by or 'NOT FOUND'}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} found.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
