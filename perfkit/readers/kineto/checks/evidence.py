"""The input of the checks of a trace, and their result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.columns import Integers
from perfkit.intervals import Steps
from perfkit.readers.kineto.attribution.gpu_steps import GpuSteps
from perfkit.readers.kineto.decode.events import DeviceEvents, HostEvents

SHARE, NS = "share", "ns"
ROUNDING = 2_000  # ns: whole µs, and what two clocks are apart

AGAIN = "Capture it again."
OTHER_PROFILER = "Export a trace before another profiler starts, and capture it again."
LESS_AT_ONCE = "Capture fewer steps at a time, for a full buffer loses activities."
CLOCKS = "Capture it again; where it stays so, update the driver and PyTorch, whose clocks disagree."
DEFECT = "Capture it again; where it stays so, report it with the trace."


@dataclass(frozen=True)
class Expected:
    """Knowledge of perfkit's own capture about its trace: how many steps it recorded, each with a wait for the GPU at
    its end, whether they ran on a GPU, and a step's time without a profiler in ns (None: not timed)."""

    steps: int
    on_gpu: bool = False
    timed_ns: float | None = None


@dataclass(frozen=True)
class Evidence:
    """The input of the checks. `launch` is the host event that launched each activity, −1 for none in the trace;
    `on_gpu` are the steps as the GPU ran them (None: without a GPU); `facts` are those that the reader worked out of
    the same events."""

    host: HostEvents
    device: DeviceEvents
    steps: Steps
    launch: Integers
    on_gpu: GpuSteps | None
    facts: Mapping[str, Any]
    expected: Expected | None = None


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The result of a check; the fields are those of `TraceCheck`. `hint` is what to do where it makes the profile
    unusable; the sentence is the end of one, without a full stop."""

    holds: bool | None
    figure: float | None = None
    unit: str = SHARE
    events: int = 0
    of: int = 0
    needed: bool = True
    sentence: str = ""
    hint: str = AGAIN


DOES_NOT_APPLY = CheckOutcome(holds=None, unit="", needed=False)
