"""Every CUDA kernel of the catalog under compute-sanitizer: accesses out of bounds, and races in shared memory.

    python benchmarks/gpu_sanitize.py [--tool memcheck] [--tool racecheck] [--only TEXT]

It needs a GPU and `compute-sanitizer` (part of the CUDA toolkit); some minutes. Each tool runs this file once more,
which launches every version of every kernel on its odd cases (sizes off the vector width, one row, one column), small
ones, since the sanitizer slows a kernel a hundredfold. Exit code 1 when a tool reports an error.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from math import prod

TOOLS = ("memcheck", "racecheck")
# Racecheck reports a race where one lane arrives at an mbarrier for its warp, although the warp has met since it read:
# it orders the accesses of those threads alone that arrive. It is given kernels in which every lane does.
DEFINED = {"racecheck": "-DARRIVING_LANES=32"}
LARGEST = 5_000_000  # elements by the product of a case's sizes: larger cases take minutes under the sanitizer


def main() -> int:
    """Run every kernel under compute-sanitizer's tools; return 1 when one reports an error, 2 without the tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, action="append", help="both by default")
    parser.add_argument("--only", default="", help="operations whose name holds this")
    parser.add_argument("--define", default="", help="an option for the compiler, with --launch")
    parser.add_argument("--launch", action="store_true", help="launch the kernels, without a sanitizer")
    arguments = parser.parse_args()
    if arguments.launch:
        return launch(arguments.only, arguments.define)
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is not on the PATH: it is part of the CUDA toolkit.", file=sys.stderr)
        return 2
    results = [clean(sanitizer, tool, arguments.only) for tool in arguments.tool or TOOLS]
    return int(not all(results))


def clean(sanitizer: str, tool: str, only: str) -> bool:
    """Run the launches under one tool; print its errors and its summary."""
    # PyTorch's own kernels (their mangled names hold at::native) only make inputs here: not worth instrumenting.
    options = ["--error-exitcode", "9", "--kernel-name-exclude", "kernel_substring=at6native"]
    command = [sanitizer, "--tool", tool, *options, sys.executable, __file__, "--launch", "--only", only]
    if tool in DEFINED:
        command.append(f"--define={DEFINED[tool]}")
    done = subprocess.run(command, capture_output=True, text=True)
    output = done.stdout + done.stderr
    told = [line for line in output.splitlines() if re.search(r"^=========|^launched", line)]
    print(f"# {tool}", *(told if done.returncode else told[-2:]), sep="\n", flush=True)
    if done.returncode and not told:
        print(output, file=sys.stderr)
    return done.returncode == 0


def launch(only: str, define: str) -> int:
    """Launch every CUDA kernel, compiled with `define`, on each of its small cases; print the number of launches."""
    import torch

    from perfkit.kernels import catalog
    from perfkit.kernels.checking import Inputs, poisoned_run
    from perfkit.kernels.cuda import build
    from perfkit.kernels.languages import candidates

    if define:
        build.OPTIONS = (*build.OPTIONS, define)
    count = 0
    operations = [operation for family in catalog() for operation in family.operations]
    for operation in (one for one in operations if only in one.name):
        for dtype in ("fp32", "bf16"):
            versions = [i.version for i in candidates(operation, "cuda", dtype) if i.language == "cuda"]
            for case in small(operation.cases) if versions else ():
                given = operation.inputs(Inputs(dtype, 1), **case)
                arguments = [a.cuda() if isinstance(a, torch.Tensor) else a for a in given]
                for version in versions:
                    poisoned_run(operation, version, arguments, "cuda", "cuda")
                    torch.cuda.synchronize()
                    count += 1
    print(f"launched {count} calls")
    return 0


def small(cases: tuple[Mapping[str, int], ...]) -> Iterator[Mapping[str, int]]:
    """The cases that a sanitizer gets through in seconds; where all are large, the smallest of them."""
    sizes = [prod(case.values()) for case in cases]
    limit = max(LARGEST, min(sizes, default=0))
    yield from (case for case, size in zip(cases, sizes, strict=True) if size <= limit)


if __name__ == "__main__":
    sys.exit(main())
