"""The run folder: what a capture leaves behind, and all that a report needs.

    RUN/
      run.json                 the manifest (`Manifest`), written last and whole
      ceilings.json            the ceilings this run is judged by
      BACKEND/                 one folder a backend; RUN is a TensorBoard logdir, each backend a run in it
        kernels.parquet        the kernel table
        *.pt.trace.json.gz     the torch.profiler trace; with --ranks one a rank: rank0.*, rank1.*, …
        lines.json.gz          the trace of a step whose source lines are marked
        generated.txt          the program as the backend made it, where it makes one
        annotated.txt, .html   the same with what each line costs, with --annotate
        counters.ncu-rep       with --profiler ncu: what ncu wrote; its counters are joined onto kernels.parquet
        nsight.*               with --profiler nsys: nsys's report, its sqlite export, and its kernel table (parquet)
        events.out.tfevents.*  scalars a step, and the report's tables as text
        log.txt                what the backend's process printed; with --ranks rank0.log.txt, … too

Nothing here needs torch: a run made on one machine is read on any other.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from perfkit.errors import InputError, RunFailed
from perfkit.settings import Settings

SCHEMA_VERSION = 1
MANIFEST = "run.json"
CEILINGS = "ceilings.json"
KERNELS = "kernels.parquet"
GENERATED = "generated.txt"
LINES = "lines.json.gz"
ANNOTATED_TEXT, ANNOTATED_PAGE = "annotated.txt", "annotated.html"

# Warnings on how a run timed a backend, which say nothing of what another measurement did with it.
TIMED_ALONE = "Too large to keep all backends in memory: timed one after another."
TIMED_APART = "Too large to be kept in memory with the others: timed apart from them."


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of generating tokens: how often the model runs in it, and what one run has to do, on average."""

    name: str  # prefill, decode
    runs: int
    tokens: int  # that come in, of all sequences together
    flop: float
    weight_bytes: float
    cache_bytes: float  # of keys and values, read or written


class WorkloadFacts(msgspec.Struct, kw_only=True):
    """Facts about the workload in the manifest, so that a report needs nothing else."""

    title: str
    parameters: int
    samples_per_step: int | None
    sample_name: str = "samples"
    model_flop: dict[str, float] = {}  # part → FLOP a step, worked out by hand (docs/numbers.md), for MFU
    parameter_sizes: dict[str, int] = {}  # numbers of each parameter by name, in the model's order
    frozen: list[str] = []  # those of them that are not trained
    fp8_layers: list[str] = []  # paths of the modules whose products are in fp8
    passes: dict[str, tuple[str, ...]] = {}  # pass → module path patterns
    data_source: str = ""
    notes: list[str] = []
    program: str = ""  # of a program of the user's its command, and what a step of it is
    steps_are: str = ""
    phases: list[Phase] = []  # of a step that generates tokens


class Check(msgspec.Struct, frozen=True):
    """One comparison: the relative error (docs/numbers.md#correctness), what is allowed, and eager's own error."""

    name: str
    error: float | None  # None: not comparable (missing, wrong shape, not finite)
    allowed: float
    eager_error: float | None
    ok: bool


class Correctness(msgspec.Struct, kw_only=True):
    """A backend's results against the reference in higher precision."""

    reference: str
    ok: bool
    checks: list[Check]
    reference_losses: list[float]
    problems: list[str] = []


class Symbol(msgspec.Struct, frozen=True, kw_only=True):
    """A symbol of a backend's executed program and the kernel it ran on."""

    name: str
    kernel: str
    trace: str  # forward or backward
    count: int
    expected: bool = False


class DeclaredKernel(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that only the backend knows about a kernel it generated: its work, and the operators it fuses."""

    flop: dict[str, float]
    bytes_read: float
    bytes_written: float
    operators: tuple[str, ...] = ()
    family: str = "fused"
    loops: tuple[tuple[float, float], ...] = ()  # on a GPU, of each of its loops: bytes, and instructions of one lane


class TraceCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a check of a profile. `holds`: None where it does not apply to the profile.

    `figure` is a share (0 to 1) or ns, as `unit` says; `events` of `of` failed. `needed`: a failure makes the profile
    unusable. `sentence` says what failed, or is a footnote to a check that holds.
    """

    name: str
    says: str  # what holds, in words
    holds: bool | None = None
    figure: float | None = None
    unit: str = ""
    events: int = 0
    of: int = 0
    needed: bool = False
    sentence: str = ""


class RankRun(msgspec.Struct, kw_only=True):
    """Measurements of one rank of a backend, in ns and bytes."""

    rank: int
    host: str = ""
    device: str = ""
    steps_ns: list[float] = []  # of the same timed steps on every rank, each begun by all together
    profiled_ns: list[float] = []
    peak_bytes: float | None = None
    trace: str = ""  # its file in the backend's folder


class Power(msgspec.Struct, kw_only=True):
    """A GPU while steps were timed: its mean draw and power limit in W, its median and highest clock in Hz, and the
    shares of the time in which the power limit or the temperature held the clock down. None: unknown.
    """

    watts: float | None = None
    limit_w: float | None = None
    clock_hz: float | None = None
    max_clock_hz: float | None = None
    capped: float | None = None  # by the power limit
    hot: float | None = None  # by the temperature


class World(msgspec.Struct, kw_only=True):
    """The ranks of a run: how many, how they share the work, what carries their collectives, and where they ran."""

    ranks: int
    parallel: str
    backend: str  # nccl or gloo
    hosts: list[str] = []
    threads: int = 1  # of a rank, on a CPU


class BackendRun(msgspec.Struct, kw_only=True):
    """Results of one backend. `status` is ok, wrong, failed or unavailable; `reason` says why when it is not ok."""

    name: str
    status: str = "ok"
    reason: str = ""
    own: bool = False  # a program of the user's: what it computes is right by definition
    timed: bool = True  # False: ran only as the reference
    prepare_ns: float | None = None  # from the model to a callable that has run once: compile or trace time included
    first_step_ns: float | None = None
    warmup_ns: list[float] = []
    samples_ns: list[float] = []
    turns: list[int] = []  # how many of `samples_ns` each turn gave, in order
    profiled_ns: list[float] = []  # wall time of the profiled steps
    replays: bool = False  # the timed steps replay CUDA graphs; the profiled ones launch their kernels one by one
    # Times of each timed step that generates: to the first token, and for each further one.
    tokens_ns: list[list[float]] = []
    beside_ns: list[float] = []  # of the steps right before them, in the same process without the profiler
    losses: list[float] = []
    peak_memory_bytes: float | None = None
    memory_how: str = ""
    fresh_bytes: float | None = None  # of the pages that a timed step got from the kernel, all taken as small ones
    system_ns: float | None = None  # CPU time of a timed step in the kernel, over all threads
    power: Power | None = None  # of the GPU during timed steps; of rank 0's where there are several
    correctness: Correctness | None = None
    symbols: list[Symbol] = []
    generated: str = ""  # file with the program as the backend made it: a Thunder trace, generated code
    trace: str = ""
    unusable: str = ""  # why no number was made from the trace, in sentences; then it has no kernel table
    trace_checks: list[TraceCheck] = []  # of an unusable trace; else the kernel table has them
    nsight: str = ""  # the report of ncu or nsys in the backend's folder
    # Counts of Dynamo: graphs, graph_breaks (reason → count), recompilations (function, reason, ns).
    compiler: dict[str, Any] | None = None
    # For several ranks, a step of `samples_ns` and the peak of memory are the slowest's and the largest of these.
    ranks: list[RankRun] = []
    warnings: list[str] = []


class Manifest(msgspec.Struct, kw_only=True):
    """The whole run in one record."""

    schema: int = SCHEMA_VERSION
    perfkit: str
    created: str
    command: list[str]
    settings: Settings
    workload: WorkloadFacts
    environment: dict[str, Any] = {}
    fingerprint: str = ""
    world: World | None = None  # None for one process
    backends: list[BackendRun] = []
    complete: bool = True
    warnings: list[str] = []

    def backend(self, name: str) -> BackendRun | None:
        """The run of the backend called `name`, or None."""
        return next((b for b in self.backends if b.name == name), None)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest through a temporary name, so that it is whole or not there."""
    write_record(folder / MANIFEST, manifest)


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest. Raises `InputError` when `folder` is not a run folder, or it is damaged."""
    path = folder / MANIFEST
    try:
        return read_record(path, Manifest, SCHEMA_VERSION, "Run the workload again.")
    except InputError as error:
        if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise
        raise InputError(
            f"{folder} is not a run folder: it has no {MANIFEST}.", "Give the folder that `perfkit run` printed."
        ) from error


def stamp() -> str:
    """Return the local time as a part of a name that sorts by age: 20260101-120000."""
    return time.strftime("%Y%m%d-%H%M%S")


def usual_folder(name: str) -> Path:
    """Return the folder of a run where none was named: `runs/NAME-STAMP`."""
    return Path("runs") / f"{name}-{stamp()}"


def is_run_folder(path: Path) -> bool:
    """Return whether `path` is a folder with a manifest in it."""
    return (path / MANIFEST).is_file()


class Stored(Protocol):
    """A record in a file of its own: it has the number of its form."""

    schema: int


Record = TypeVar("Record", bound=Stored)


def write_record(path: Path, record: object) -> None:
    """Write a record as indented JSON, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(record), indent=1))


def read_record(path: Path, kind: type[Record], newest: int, advice: str) -> Record:
    """Read a record of `kind`. Raises `InputError` where it is missing, damaged (with `advice`) or above `newest`."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged: {error}.", advice) from error
    if record.schema > newest:
        by = f" ({record.perfkit})" if hasattr(record, "perfkit") else ""
        raise InputError(f"{path} was written by a newer perfkit{by}.", "Update perfkit to read it.")
    return record


@contextlib.contextmanager
def written_whole(path: Path, advice: str = "Free space or choose --out.") -> Iterator[Path]:
    """Give a temporary name next to `path` to write to, and rename it afterwards: no file is lost or half-written.

    Raises `RunFailed` with the cause (disk full, no permission) in one sentence, and `advice`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise RunFailed(f"{path} could not be written: {error.strerror}.", advice) from error
    finally:
        with contextlib.suppress(OSError):  # a folder that is a file cannot be searched either
            temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file whole or not at all. Raises `RunFailed` where that is impossible."""
    with written_whole(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
