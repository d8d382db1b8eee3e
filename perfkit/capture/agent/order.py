"""The order of a launcher to the programs it starts, and the result of each of them; both JSON files in one folder."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "PERFKIT_CAPTURE"  # names the order's file in the environment of a program and its children
ORDER, RESULT, TRACE = "order.json", "result.json", "trace.json"
LINES = "lines.json"  # the trace of the step whose source lines are marked
STARTED = "started"  # an empty file, made by each Python that finds perfkit
LOADING, WORKER = "loading.json", "worker-{}.json"  # batches of the loaders, and those of one worker by its process
SHORTAGE = "oom.pickle"  # the snapshot of an allocation that failed
HOST, DEVICE, FREE, CHILDREN = "host", "device", "device free", "children"  # of `ProcessResult.takes`
GRAPH = "graph-{}.json"  # the trace of a CUDA graph's capture, by the graph's number
WARMUP, STEPS = 10, 3
CUT = "The program was ended by a signal, or by os._exit, before its steps were recorded."


@dataclasses.dataclass(frozen=True)
class Order:
    """Record `steps` steps after `warmup` others, which begin `after` seconds after torch was imported.

    `memory` records allocations too; with `stop` the program ends when the steps are recorded. With `whole` the whole
    program is one step, from the import of torch to its end. With `counters` steps are left to a tool that counts.
    `lines` marks source lines in one further step; None: where that costs little. With `timed` the steps are timed, and
    not recorded; the result then says which of the files `watched` the program loaded. With `waits_for`, the number of
    another process, the program waits for that one's word before its steps are timed, and before it ends (`waiting`).
    """

    warmup: int = WARMUP
    steps: int = STEPS
    after: float = 0.0
    memory: bool = False
    stop: bool = False
    whole: bool = False
    counters: bool = False
    lines: bool | None = None
    timed: bool = False
    watched: tuple[str, ...] = ()
    waits_for: int = 0


@dataclasses.dataclass
class ProcessResult:
    """Records of one process, and facts about its program. Times are in ns; unknown values are None."""

    steps_are: str = ""  # what a step is, in words
    found: int = 0  # steps that were seen at all
    problem: str = ""  # why nothing, or not everything, was recorded: a sentence
    hint: str = ""  # what to do about it, where that is known
    warmup_ns: list[float] = dataclasses.field(default_factory=list)
    samples_ns: list[float] = dataclasses.field(default_factory=list)
    step_ns: list[float] = dataclasses.field(default_factory=list)
    event_cost_ns: float | None = None
    device: str = "cpu"
    dtype: str = "fp32"
    tf32: bool = False
    training: bool = False
    parameters: int = 0
    batch_size: int = 0
    layers: str = ""  # the pattern of the repeated blocks
    model: str = ""  # class names of the models
    peak_memory_bytes: float | None = None
    memory_how: str = ""
    fresh_bytes: float | None = None  # of the pages that a step beside the profiled ones got from the kernel
    system_ns: float | None = None  # CPU time of such a step in the kernel, over all threads
    cpu_ns: float | None = None  # CPU time of such a step over all threads
    profiled_cpu_ns: list[float] = dataclasses.field(default_factory=list)  # and of each profiled one
    timed_until: float | None = None  # when the last of `samples_ns` ended, in seconds since the epoch
    gpu: str = ""  # the UUID of the GPU that was used then
    stepped: list[list[Any]] = dataclasses.field(default_factory=list)  # of each fused group: shape and dtype of each
    rank: int | None = None
    threads: dict[str, Any] = dataclasses.field(default_factory=dict)  # PyTorch's on a CPU, and what says so
    argv: list[str] = dataclasses.field(default_factory=list)
    pid: int = 0
    compiled: dict[str, Any] = dataclasses.field(default_factory=dict)  # what a compiler told of its kernels
    costs: list[list[Any]] = dataclasses.field(default_factory=list)  # registered ones, of the calls in the trace
    notes: list[str] = dataclasses.field(default_factory=list)
    loaded: list[str] = dataclasses.field(default_factory=list)  # those of the order's `watched`
    takes: dict[str, float] = dataclasses.field(default_factory=dict)  # `stopwatch.taken` of a timed process

    @property
    def timed_spans(self) -> list[tuple[float, float]]:
        """When the steps of `samples_ns` began and ended, in seconds since the epoch."""
        if self.timed_until is None:
            return []
        return [(self.timed_until - sum(self.samples_ns) / 1e9, self.timed_until)]

    @property
    def recorded(self) -> bool:
        """Return whether there is a trace with steps."""
        return bool(self.step_ns)


def write(folder: Path, name: str, content: Order | ProcessResult) -> None:
    """Write the file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.{os.getpid()}"
    temporary.write_text(json.dumps(dataclasses.asdict(content)))
    temporary.replace(folder / name)


def process_folder(order: str | os.PathLike[str], process: int) -> Path:
    """The folder of a process that is armed by the order in the file at `order`."""
    return Path(order).parent / f"process-{process}"


def read_order(path: str | os.PathLike[str]) -> Order:
    """The order in the file at `path`."""
    return Order(**_read(Path(path)))


def read_results(folder: Path) -> list[tuple[Path, ProcessResult]]:
    """Return folder and result of each process that left one, the lowest rank first."""
    found = [(path.parent, ProcessResult(**_read(path))) for path in sorted(folder.glob(f"*/{RESULT}"))]
    return sorted(found, key=lambda one: (one[1].rank is None, one[1].rank or 0, one[1].pid))


def captures(folder: Path) -> dict[int, Path]:
    """The traces of captures in the folder of a process, by the number of their graph."""
    found = ((path.stem.rpartition("-")[2], path) for path in folder.glob(GRAPH.format("*")))
    return {int(number): path for number, path in found if number.isdigit()}


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content
