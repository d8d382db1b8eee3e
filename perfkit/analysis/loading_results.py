"""Facts of a program's DataLoader: waits, workers, their lines, and the step with other numbers of workers."""

from __future__ import annotations

import msgspec

from perfkit.analysis.line_results import SourceLine

STEP, COMPUTING, CORES, DISK, WAITING = "the step", "computing", "cores", "the disk", "waiting"  # what limits


class WorkersPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a step with another number of workers, and what limits it then."""

    workers: int
    step_ns: float
    limit: str


class BatchTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a batch on average, in ns, by cause; None: unknown.

    `queued_ns`: without a core that is free; `other_ns`: what is left, such as files, the network, locks.
    """

    time_ns: float
    computing_ns: float
    queued_ns: float | None
    other_ns: float | None
    read_bytes: float | None  # from disks


class LoaderWorker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker: how many batches it made, what one takes, and its lines by their share of that."""

    worker: int
    batches: int
    batch: BatchTime
    lines: list[SourceLine] = []


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """One DataLoader. Without workers the step's own thread makes the batches.

    `ready` is how many batches stood ready when the program asked (the median), of `most_ready` at most. `reckoned_ns`
    is the step as `predictions` would have it with the present number of workers.
    """

    workers: int
    prefetch: int
    cores: float
    batches: float  # a step
    step_ns: float  # of the timed steps
    wait_ns: float  # a step, for batches
    ready: float | None
    most_ready: int | None
    limit: str  # "" where it is unknown
    batch: BatchTime | None = None
    processes: list[LoaderWorker] = []
    lines: list[SourceLine] = []  # of all workers
    reckoned_ns: float | None = None
    predictions: list[WorkersPrediction] = []

    @property
    def enough(self) -> WorkersPrediction | None:
        """The fewest workers with which a step is within 5 % of the best; None where nothing is predicted."""
        least = min((prediction.step_ns for prediction in self.predictions), default=0.0)
        return next((prediction for prediction in self.predictions if prediction.step_ns <= 1.05 * least), None)
