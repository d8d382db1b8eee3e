"""A stand-in for Nsight Systems' `nsys profile`: it takes the real tool's options, runs the program, leaves its files.

FAKE_NSYS_EXPORT     the sqlite export that it "captures"
FAKE_NSYS_FAULT      importer (only a .qdstrm), export (only a .nsys-rep), range (the range never began), crash
FAKE_NSYS_ARGUMENTS  a file to write the command line to, as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from tools import run


def say(text: str) -> None:
    print(text, flush=True)


def options() -> argparse.Namespace:
    """The command line, as strict as the tool: an option that it does not know ends it."""
    parser = argparse.ArgumentParser(prog="nsys", allow_abbrev=False)
    parser.add_argument("--trace", "-t", required=True)
    parser.add_argument("--sample", "-s", choices=("none", "cpu", "process-tree", "system-wide"))
    parser.add_argument("--cpuctxsw", choices=("none", "process-tree", "system-wide"))
    parser.add_argument("--cuda-graph-trace", choices=("graph", "node"))
    parser.add_argument("--force-overwrite", "-f", choices=("true", "false"), default="false")
    parser.add_argument("--export", choices=("sqlite", "none"))
    parser.add_argument("--output", "-o", type=Path, required=True)
    parser.add_argument("--capture-range", "-c", choices=("none", "cudaProfilerApi", "nvtx", "hotkey"))
    parser.add_argument("--capture-range-end", choices=("none", "stop", "stop-shutdown"))
    parser.add_argument("--nvtx-capture", "-p")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    if sys.argv[1:2] != ["profile"]:
        parser.error("only `nsys profile` is here")
    given = parser.parse_args(sys.argv[2:])
    unknown = set(given.trace.split(",")) - {"cuda", "nvtx", "osrt", "cublas", "cudnn", "none"}
    if unknown:
        parser.error(f"argument for option --trace is invalid: {unknown}")
    return given


def main() -> int:
    given, fault = options(), os.environ.get("FAKE_NSYS_FAULT", "")
    if recorded := os.environ.get("FAKE_NSYS_ARGUMENTS"):
        Path(recorded).write_text(json.dumps(sys.argv[1:]))
    say("Collecting data...")
    code = abs(run(given.program))
    if fault == "crash":
        os.abort()
    if fault == "range":
        return code
    raw, report, export = (Path(f"{given.output}{suffix}") for suffix in (".qdstrm", ".nsys-rep", ".sqlite"))
    say(f"Generating '{raw}'")
    if fault == "importer":
        raw.write_bytes(b"raw")
        say("Failed to create the report: the importer was not found.")
        return 1
    report.write_bytes(b"NVIDIA Tegra Profiler Report")
    say("[1/2] [========================100%] " + report.name)
    if fault != "export":
        shutil.copyfile(os.environ["FAKE_NSYS_EXPORT"], export)
        say("[2/2] [========================100%] " + export.name)
    say(f"Generated:\n    {report}")
    return code


if __name__ == "__main__":
    sys.exit(main())
