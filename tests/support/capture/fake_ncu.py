"""A stand-in for Nsight Compute's `ncu`: it takes the real tool's options, runs the program, says what the tool says.

The texts are those of ncu 2025.3 (and, for what a GPU refuses, those that its users report). What it does is chosen by
the environment:

    FAKE_NCU_REPORT     the report that it "captures"
    FAKE_NCU_KERNELS    names of the kernels that it reports, separated by commas; as many as the report holds
    FAKE_NCU_FAULT      permission, library, unsupported, driver, clocks, busy, unknown, filter, range, nothing, disk or
                        crash
    FAKE_NCU_ARGUMENTS  a file to write the command line to, as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from pathlib import Path

from tools import run

SETS = ("basic", "detailed", "full", "nvlink", "pmsampling", "roofline")
REFUSALS = {
    "permission": (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
        "the target device 0. For instructions on enabling permissions and to get more information see "
        "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
    ),
    "library": (
        "\n==ERROR== An error was reported by the counter measurement library:\n==ERROR== Failed to initialize the "
        "profiler: LibraryNotLoaded. Check that a compatible driver library is loaded.\n"
        "==PROF== Trying to shutdown target application\n==ERROR== The application returned an error code (9)."
    ),
    "unsupported": (
        "==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer --list-chips option."
    ),
    "driver": (
        "==ERROR== An error was reported by the driver:\n==ERROR== Cuda driver is not compatible with Nsight Compute."
    ),
    "clocks": (
        "==ERROR== Cannot lock GPU clock frequencies on MIG! Try locking the clocks externally (e.g. using 'nvidia-smi "
        "--lock-gpu-clocks=tdp,tdp') or profile without fixed frequencies (see '--clock-control').\n"
        '==ERROR== Failed to profile "scale" in process 7'
    ),
    "busy": (
        "==ERROR== Driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently collecting "
        "profiling data."
    ),
    "unknown": '==ERROR== Unknown Error on device 0.\n==ERROR== Failed to profile "scale" in process 7',
}
NOTHING = {
    "filter": "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. scale\n2. gelu_forward",
    "range": (
        "==WARNING== No kernels were profiled.\n"
        "==WARNING== Note that specified NVTX include expressions match only push/pop ranges."
    ),
    "nothing": "==WARNING== No kernels were profiled.",
}


def say(text: str) -> None:
    print(text, flush=True)


def options() -> argparse.Namespace:
    """The command line, as strict as the tool: an option that it does not know ends it."""
    parser = argparse.ArgumentParser(prog="ncu", allow_abbrev=False)
    parser.add_argument("--export", "-o", type=Path, required=True)
    parser.add_argument("--force-overwrite", "-f", action="store_true")
    parser.add_argument("--target-processes", choices=("all", "application-only"), default="all")
    parser.add_argument("--nvtx", action="store_true")
    parser.add_argument("--nvtx-include", action="append", default=[])
    parser.add_argument("--set", choices=SETS)
    parser.add_argument("--metrics")
    parser.add_argument("--clock-control", choices=("base", "none", "reset"), default="base")
    parser.add_argument("--cache-control", choices=("all", "none"), default="all")
    parser.add_argument("--kernel-name", "-k")
    parser.add_argument("--launch-skip", "-s", type=int, default=0)
    parser.add_argument("--launch-count", "-c", type=int)
    parser.add_argument("--profile-from-start", choices=("on", "off", "yes", "no"), default="on")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> int:
    given = options()
    if recorded := os.environ.get("FAKE_NCU_ARGUMENTS"):
        Path(recorded).write_text(json.dumps(sys.argv[1:]))
    if given.metrics and given.metrics.startswith("regex:"):
        re.compile(given.metrics.removeprefix("regex:"))
    if given.nvtx_include and not given.nvtx:
        say("==ERROR== --nvtx-include requires --nvtx.")
        return 1
    if given.export.exists() and not given.force_overwrite:
        say(f"==ERROR== File {given.export} already exists. Use '-f' for overwriting the file.")
        return 1
    if not given.export.parent.is_dir():
        say(f"==ERROR== Unable to write to file {given.export.name}. Please verify this file is not locked.")
        return 1
    if not given.program or shutil.which(given.program[0]) is None:
        say(f"==ERROR== '{(given.program or [''])[0]}' does not exist or is not an executable.")
        return 1
    return profile(given)


def profile(given: argparse.Namespace) -> int:
    fault = os.environ.get("FAKE_NCU_FAULT", "")
    say(f"==PROF== Connected to process {os.getpid()} ({given.program[0]})")
    if fault in REFUSALS:
        say(REFUSALS[fault])
        return 9
    code = run(given.program)
    if fault == "crash":
        os.abort()
    if fault in NOTHING:
        say(f"==PROF== Disconnected from process {os.getpid()}\n{NOTHING[fault]}")
        return 0
    for number, name in enumerate(filter(None, os.environ.get("FAKE_NCU_KERNELS", "").split(","))):
        sys.stdout.write(f'==PROF== Profiling "{name}" - {number}: ')
        for part in ("0%", "....50%", "....100%"):
            sys.stdout.write(part)
            sys.stdout.flush()
        say(" - 14 passes")
        if fault == "disk":
            given.export.write_bytes(Path(os.environ["FAKE_NCU_REPORT"]).read_bytes()[:1000])
            say(f"==ERROR== Failed to save the report to file {given.export}")
    say(f"==PROF== Disconnected from process {os.getpid()}")
    if code:
        say(f"==ERROR== The application returned an error code ({abs(code)}).")
    if fault == "disk":
        return 1
    shutil.copyfile(os.environ["FAKE_NCU_REPORT"], given.export)
    say(f"==PROF== Report: {given.export}")
    return abs(code)


if __name__ == "__main__":
    sys.exit(main())
