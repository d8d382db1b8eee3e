"""Nsight Compute: the command line, its progress, and what became of a capture."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.capture.nsight import messages
from perfkit.capture.nsight.process import ToolResult
from perfkit.errors import PerfkitError, RunFailed
from perfkit.readers.ncu.metrics import COLLECTED

NAME = "ncu"
SUFFIX = ".ncu-rep"
METRICS = "metrics"  # not a set of the tool: exactly what perfkit's report is made of
SETS = (METRICS, "basic", "detailed", "full", "roofline")
CLOCKS = ("none", "base")
CACHES = ("all", "none")

_OWN = re.compile(r"==[A-Z]+==|Available Kernels:|\d+\. \S")
_PROGRESS = re.compile(r'==PROF== Profiling "(?P<name>.*?)" - (?P<number>\d+)(?: \((?P<of>\d+/\d+)\))?:(?P<rest>.*)')
_PASSES = re.compile(r"- (\d+) pass(?:es)?\s*$")


@dataclass(frozen=True, kw_only=True)
class NcuOptions:
    """The kernels to capture, and how.

    `clock_control` is "none" (kernels run at the clocks that the program meets without a profiler, so that counters
    and the times of a trace belong together) or "base" (held at the base clock: slower, and the same every time).
    `cache_control` is "all" (flushed before every replay: the same every time) or "none" (as the last one left them).
    `nvtx` are ranges outside of which nothing is profiled; with `profiler_api` nothing is outside of
    cudaProfilerStart and cudaProfilerStop either.
    """

    set: str = METRICS
    clock_control: str = "none"
    cache_control: str = "all"
    kernel_name: str = ""
    launch_skip: int = 0
    launch_count: int = 0
    nvtx: tuple[str, ...] = ()
    profiler_api: bool = False

    @property
    def filtered(self) -> bool:
        """Return whether kernels were left out on purpose."""
        return bool(self.kernel_name or self.launch_skip or self.launch_count or self.nvtx or self.profiler_api)


def metrics_option() -> str:
    """The metrics that perfkit's report needs, as one expression.

    An expression, because what exists differs between generations of GPUs, and a name that does not exist would be an
    error to some versions of the tool: what matches nothing is left out. In the plainest syntax, for the tool's own.
    """
    plain = "|".join(COLLECTED).replace(r"\w", "[a-zA-Z0-9_]").replace("(?:", "(").replace("+?", "+")
    return f"regex:^({plain})$"


def command(options: NcuOptions, report: Path, program: Sequence[str]) -> list[str]:
    """The command that profiles `program` into `report` (which ends in .ncu-rep; one that exists is replaced)."""
    given = [NAME, "--export", str(report), "--force-overwrite", "--target-processes", "all", "--nvtx"]
    given += ["--metrics", metrics_option()] if options.set == METRICS else ["--set", options.set]
    given += ["--clock-control", options.clock_control, "--cache-control", options.cache_control]
    if options.kernel_name:
        given += ["--kernel-name", options.kernel_name]
    if options.launch_skip:
        given += ["--launch-skip", str(options.launch_skip)]
    if options.launch_count:
        given += ["--launch-count", str(options.launch_count)]
    for name in options.nvtx:
        given += ["--nvtx-include", _range(name)]
    if options.profiler_api:
        given += ["--profile-from-start", "off"]
    return [*given, *program]


def _range(name: str) -> str:
    """A push/pop range in the tool's syntax: `step` → `step/`; what has an operator of that syntax already stays."""
    return name if name.endswith(("/", "]", "*", "+")) else f"{name}/"


def is_own(line: str) -> bool:
    """Return whether a line is the tool's and not the program's."""
    return bool(_OWN.match(line))


class NcuProgress:
    """Follows the tool's lines: how many kernels it profiled, and a text for people, now and then."""

    EVERY_S = 0.5

    def __init__(
        self, show: Callable[[str], None], expected: int = 0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self._now, self._shown = show, now, -self.EVERY_S
        self._of = f" of about {expected}" if expected else ""
        self.kernels = 0

    def __call__(self, line: str) -> None:
        found = _PROGRESS.match(line)
        if not found:
            return
        number, passes = int(found["number"]) + 1, _PASSES.search(found["rest"])
        name = found["name"][:60]
        if passes:
            self.kernels = max(self.kernels, number)
        if self._now() - self._shown < self.EVERY_S:
            return
        self._shown = self._now()
        done = re.findall(r"(\d+)%", found["rest"])
        how_far = f"{passes[1]} passes" if passes else f"{done[-1] if done else 0}%"
        self._show(f"profiling under ncu · kernel {number}{self._of}, {name}: {how_far}")


def failure(ended: ToolResult, report: Path, options: NcuOptions, limit_s: float | None) -> PerfkitError | None:
    """Why the capture failed, or what is wrong with it though there is a report; None when all went well."""
    said = ended.said
    known = messages.known(said, report)
    if known:
        return known
    if ended.timed_out:
        return RunFailed(
            f"The program did not end under ncu within {limit_s:.0f} s.",
            "ncu runs each kernel many times: profile fewer (--launch-count, --nvtx), or raise --time-limit.",
        )
    returned = messages.returned(said)
    trouble = messages.last_error(said)
    if trouble:
        return RunFailed(f"ncu failed: {trouble}", ended.last_words)
    if returned is not None:
        return RunFailed(f"The program ended under ncu with exit code {returned}.", ended.last_words)
    if any(messages.NO_KERNELS in line for line in said):
        return messages.no_kernels(said, options.filtered)
    if ended.code or not report.is_file():
        return RunFailed(f"ncu {ended.how} and left no report.", ended.last_words)
    return None
