"""Nsight Systems: the command line, its progress, and what became of a capture."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.capture.nsight import messages
from perfkit.capture.nsight.process import ToolResult
from perfkit.errors import PerfkitError, RunFailed

NAME = "nsys"
SUFFIX = ".nsys-rep"
RAW = ".qdstrm"  # what it leaves where its importer is missing
TRACE = "cuda,nvtx,osrt"

_OWN = re.compile(
    r"(Generating '|Generated:|Collecting data|Capture range (started|ended)|Processing (events|\[)|Saving |WARNING: "
    r"|Failed to |FATAL|Error: |\[\d+/\d+\] \[|\s+\S+\.(nsys-rep|sqlite|qdstrm)\s*$|The target application "
    r"|Unrecognised option|unrecognised option|No reports? (were )?generated|Importer error|\*\*\*\* )"
)
_BAR = re.compile(r"\[(\d+)/(\d+)\] \[=*\s*(\d+)%\]\s*(\S*)")


@dataclass(frozen=True, kw_only=True)
class NsysOptions:
    """The part to capture. With `profiler_api` only what runs between cudaProfilerStart and cudaProfilerStop."""

    profiler_api: bool = False
    nvtx: tuple[str, ...] = ()

    @property
    def filtered(self) -> bool:
        """Return whether something was left out on purpose."""
        return bool(self.profiler_api or self.nvtx)


def command(options: NsysOptions, report: Path, program: Sequence[str]) -> list[str]:
    """The command that captures `program` into `report` (.nsys-rep) and the sqlite export next to it.

    Kernels of CUDA graphs are traced one by one, since a graph as a whole says nothing of its kernels. CPU sampling is
    off: it needs rights of its own and records nothing that perfkit reads.
    """
    given = [NAME, "profile", "--trace", TRACE, "--sample", "none", "--cpuctxsw", "none"]
    given += ["--cuda-graph-trace", "node", "--force-overwrite", "true", "--export", "sqlite"]
    given += ["--output", str(report.with_suffix(""))]
    if options.profiler_api:
        given += ["--capture-range", "cudaProfilerApi", "--capture-range-end", "stop"]
    elif options.nvtx:
        given += ["--capture-range", "nvtx", "--capture-range-end", "stop", "--nvtx-capture", _range(options.nvtx[0])]
    return [*given, *program]


def _range(name: str) -> str:
    """Turn ncu's DOMAIN@NAME into this tool's order, NAME@DOMAIN."""
    domain, at, plain = name.partition("@")
    return f"{plain}@{domain}" if at else name


def environment(options: NsysOptions) -> dict[str, str]:
    """Return the environment that the tool needs: range names are not registered strings, which it would insist on."""
    return {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if options.nvtx and not options.profiler_api else {}


def is_own(line: str) -> bool:
    """Return whether a line is the tool's and not the program's."""
    return bool(_OWN.match(line))


class NsysProgress:
    """Follows the tool's lines."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def __call__(self, line: str) -> None:
        bar = _BAR.match(line)
        if bar:
            self._show(f"nsys: writing {bar[4] or 'the report'} · {bar[3]}%")
        elif line.startswith(("Collecting", "Generating", "Capture range")):
            self._show(f"nsys: {line.split(chr(39))[0].strip(' .').lower()}")


def export_of(report: Path) -> Path:
    """Return the sqlite file that the tool writes next to a report."""
    return report.with_suffix(".sqlite")


def failure(ended: ToolResult, report: Path, options: NsysOptions, limit_s: float | None) -> PerfkitError | None:
    """Why the capture failed, or what is wrong with it though there is an export; None when all went well."""
    known = messages.known([line for line in ended.said if "WARNING" not in line], report)
    if known:
        return known
    if ended.timed_out:
        return RunFailed(f"The program did not end under nsys within {limit_s:.0f} s.", "Raise --time-limit.")
    if not export_of(report).is_file():
        return _without_export(ended, report, options)
    if ended.code:
        return RunFailed(f"The program ended under nsys with exit code {ended.code}.", ended.last_words)
    return None


def _without_export(ended: ToolResult, report: Path, options: NsysOptions) -> PerfkitError:
    """Why there is nothing to read."""
    raw = report.with_suffix(RAW)
    if report.is_file():
        by_hand = f"nsys export --type sqlite --output {export_of(report)} {report}"
        return RunFailed("nsys wrote its report, but not the sqlite export.", f"Run `{by_hand}` and report on that.")
    if raw.is_file():
        return RunFailed(
            f"nsys captured, but could only write {raw}: its importer is not installed here or failed.",
            "Open it with the Nsight Systems of the same version on another machine (File, Import), or install all of "
            "it here; then report on the .nsys-rep or its sqlite export.",
        )
    if ended.code == 0 and options.filtered:
        return RunFailed(
            "nsys captured nothing: the range that was to be captured did not begin.",
            "The program has to call cudaProfilerStart, or to open the NVTX range.",
        )
    said = f": {ended.said[-1].strip()[:200]}" if ended.said else ""
    return RunFailed(f"nsys {ended.how} and left no report{said}.", ended.last_words)
