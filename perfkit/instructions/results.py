"""The instructions of a kernel as a report holds them, and the instructions and lines that cost most."""

from __future__ import annotations

import msgspec

CODE = "code"  # in `KernelTable.recorded`: the list of `KernelCode` of a report
# Counts of an instruction. A missing name was not counted, or the instruction is of a kind that does not have it.
SAMPLES, EXECUTED, THREADS, THREADS_ON = "samples", "executed", "threads", "threads_on"
SECTORS, IDEAL_SECTORS, LOCAL_SECTORS = "sectors", "ideal_sectors", "local_sectors"
WAVEFRONTS, IDEAL_WAVEFRONTS = "wavefronts", "ideal_wavefronts"
FILLED = "multiprocessors with blocks"  # the course that says when a kernel fills the GPU
ISSUED = ("selected", "not_selected")  # states in which a warp waits for nothing but its turn


class Instruction(msgspec.Struct, kw_only=True):
    """One SASS instruction: `at` bytes after the first, its PTX and source line where known, and what was counted."""

    at: int
    sass: str
    ptx: str = ""
    file: str = ""
    line: int = 0
    counts: dict[str, float] = {}
    stalls: dict[str, float] = {}  # samples by the state of the warp, `ISSUED` included


class Marker(msgspec.Struct, kw_only=True):
    """A remark of NVIDIA's own rules: on the instruction `at`, else on a line of a file."""

    rule: str
    message: str
    at: int | None = None
    file: str = ""
    line: int = 0


class CounterCourse(msgspec.Struct, kw_only=True):
    """Values of one counter during a launch, at moments after its begin, one every `interval_ns`."""

    name: str
    unit: str
    interval_ns: float
    at_ns: list[float]
    values: list[float]


class KernelCode(msgspec.Struct, kw_only=True):
    """The longest launch of a kernel: its instructions in order of address, imported sources, NVIDIA's markers."""

    name: str
    function: str = ""
    order: int = 0  # of the launch in the report
    launches: int = 1
    duration_ns: float | None = None
    busiest: float | None = None  # share of its peak that the busiest unit reached, 0 to 1
    unit: str = ""  # which one
    instructions: list[Instruction] = []
    sources: dict[str, str] = {}  # content by file name, of imported files
    markers: list[Marker] = []
    courses: list[CounterCourse] = []  # where the report was sampled over time (PmSampling)

    @property
    def samples(self) -> float:
        """Return all samples of warps."""
        return sum(one.counts.get(SAMPLES, 0.0) for one in self.instructions)


class HotSpot(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An instruction, or a source line with its instructions: its share of the kernel's samples, and why warps waited.

    Ratios are None where the report does not count them. `saving_ns` is the most that removing its waiting saves.
    """

    where: str
    code: str
    sass: str = ""
    ptx: str = ""
    at: int | None = None  # of an instruction
    samples: float
    share: float
    reasons: list[tuple[str, float]] = []  # of its samples, the largest first; `ISSUED` left out
    waits_for: str = ""  # the load whose value it waits for, as far as its registers say
    sectors_per_request: float | None = None
    ideal_sectors_per_request: float | None = None
    conflicts: float | None = None  # wavefronts of shared memory over those without conflicts, − 1
    local_sectors: float | None = None
    threads_off: float | None = None  # share of the threads that predicates or branches switched off
    saving_ns: float | None = None
    why: str = ""
    nvidia: list[str] = []  # its own remarks


class HotKernel(msgspec.Struct, kw_only=True):
    """The hot instructions of a kernel, and its hot lines where the report has source lines; the hottest first."""

    kernel: str
    launches: int
    duration_ns: float | None
    samples: float
    instructions: list[HotSpot] = []
    lines: list[HotSpot] = []
    notes: list[str] = []


class CodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction or a line in two reports: its part of the kernel's time in both; None where it is missing."""

    kernel: str
    where: str
    code: str
    first_ns: float | None
    second_ns: float | None

    @property
    def difference_ns(self) -> float:
        """Return how much more time it takes in the second."""
        return (self.second_ns or 0.0) - (self.first_ns or 0.0)
