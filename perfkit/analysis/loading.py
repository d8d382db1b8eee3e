"""The limit of a program's DataLoader, and the step with other numbers of workers, by replaying the measured times.

A worker makes one batch at a time, the next where it has been asked for; batch i is worker i mod N's, and the program
takes them in order. When it takes one it asks for the one `prefetch` × N later. The times of batches are the measured
ones; the program's own time between two batches is that of the timed steps. All workers and the program compute
together no faster than the cores allow.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from perfkit import units
from perfkit.analysis.line_results import SourceLine
from perfkit.analysis.loading_results import (
    COMPUTING,
    CORES,
    DISK,
    STEP,
    WAITING,
    BatchTime,
    LoaderWorker,
    Loading,
    WorkersPrediction,
)  # fmt: skip
from perfkit.analysis.words import listed, number, percent

NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of workers
_PREFETCH = 2  # of PyTorch, where nobody chose another
_REPLAYED, _ROUNDS = 240, 16  # batches, and more for each worker; the second half counts
_KEEPS_UP = 0.05  # of the step: the loader limits nothing where the program waits less
_SCARCE, _MOSTLY = 0.25, 0.5  # of a batch: time without a core, and time without computing, that limit
_GAIN = 0.97  # of the step: more workers that leave more of it are not listed
_TRUSTED = 0.2  # of the step: predictions that miss the measured step by more are not shown
_FEW = 3  # batches of a worker in the timed steps
_READS = 1 << 16  # bytes a batch: what reads less is not held up by the disk
_LEAST = 0.02  # of a batch: a line with less is not listed
_BEGIN, _END, _COMPUTED, _QUEUED, _READ, _LAST = range(6)  # of what was noted of a batch
_READY = _PROCESS = _LAST  # of one that was asked for, and of one that a worker made


def loadings(facts: Mapping[str, Any]) -> list[Loading]:
    """Each loader that the timed steps used, the one they waited for most first."""
    cpu_ns = (facts.get("cpu_ns") or [None])[0]
    found = [_loading(one, cpu_ns) for one in facts.get("loading") or []]
    return sorted([one for one in found if one is not None], key=lambda one: -one.wait_ns)


@dataclass(frozen=True)
class Times:
    """Measured times of batches and of what the program does between two, ns; CPU time of both, for each batch."""

    batches: Sequence[float]
    between: Sequence[float]
    cpu_ns: float | None
    prefetch: int
    cores: float

    def with_workers(self, count: int) -> tuple[float, str]:
        """The time from batch to batch with `count` workers, and what limits it."""
        replayed = replay(self.batches, self.between, count, self.prefetch)
        least = (self.cpu_ns or 0.0) / self.cores
        if least > replayed:
            return least, CORES
        return replayed, STEP if replayed <= (1 + _KEEPS_UP) * statistics.fmean(self.between) else COMPUTING


def replay(batches: Sequence[float], between: Sequence[float], workers: int, prefetch: int) -> float:
    """The time from one batch to the next where `workers` make them, once the first ones are used up."""
    if not workers:
        return statistics.fmean(batches) + statistics.fmean(between)
    free, asked, now, half = [0.0] * workers, [0.0] * (workers * prefetch), 0.0, 0.0
    count = _REPLAYED + _ROUNDS * workers
    for i in range(count):
        worker = i % workers
        free[worker] = max(free[worker], asked[i]) + batches[i % len(batches)]
        now = max(now, free[worker])
        asked.append(now)
        half = now if i == count // 2 else half
        now += between[i % len(between)]
    return (now - half) / (count - count // 2)


def _loading(loader: Mapping[str, Any], cpu_ns: float | None) -> Loading | None:
    asks = [ask for ask in loader["asks"] if ask[_BEGIN] < loader["timed_ns"]]
    if not asks or not loader["steps"]:
        return None
    a_step, ready = len(asks) / loader["steps"], [ask[_READY] for ask in asks if ask[_READY] >= 0]
    processes = [_process(one, loader["timed_ns"]) for one in loader["processes"] if one["batches"]]
    used = [batch for one in loader["processes"] for batch in _used(one["batches"], loader["timed_ns"])]
    batch = _mean(asks) if not loader["workers"] else _mean(used) if used else None
    step_ns, wait_ns = loader["timed_ns"] / loader["steps"], a_step * _waited(asks)
    times = _times(loader, asks, used, cpu_ns / a_step if cpu_ns else None, step_ns / a_step)
    reckoned = a_step * times.with_workers(loader["workers"])[0] if times else None
    trusted = times is not None and reckoned is not None and abs(reckoned - step_ns) <= _TRUSTED * step_ns
    return Loading(
        workers=loader["workers"],
        prefetch=loader["prefetch"],
        cores=loader["cores"],
        batches=a_step,
        step_ns=step_ns,
        wait_ns=wait_ns,
        ready=statistics.median(ready) if ready else None,
        most_ready=loader["workers"] * loader["prefetch"] if ready else None,
        limit=_limit(wait_ns / step_ns, batch),
        batch=batch,
        processes=processes,
        lines=_lines(loader["processes"]),
        reckoned_ns=reckoned,
        predictions=_predictions(times, loader["workers"], a_step, batch) if times and trusted else [],
    )


def _used(batches: Sequence[Sequence[float]], timed_ns: float) -> Sequence[Sequence[float]]:
    """The batches of a worker that count: those of the timed steps, where these are few the later ones too, while lines
    are sampled; never the first, which is cold, where there is another."""
    later = [batch for batch in batches[1:] if batch[_END] >= 0]
    timed = [one for one in later if one[_BEGIN] <= timed_ns]
    return timed if len(timed) >= _FEW else later or batches[1:] or batches


def _waited(asks: Sequence[Sequence[float]]) -> float:
    return statistics.fmean(ask[_END] - ask[_BEGIN] for ask in asks)


def _mean(batches: Sequence[Sequence[float]]) -> BatchTime:
    def mean(place: int) -> float:
        return statistics.fmean(batch[place] for batch in batches)

    time_ns = statistics.fmean(batch[_END] - batch[_BEGIN] for batch in batches)
    queued = mean(_QUEUED) if all(batch[_QUEUED] >= 0 for batch in batches) else None
    return BatchTime(
        time_ns=time_ns,
        computing_ns=mean(_COMPUTED),
        queued_ns=queued,
        other_ns=max(time_ns - mean(_COMPUTED) - queued, 0.0) if queued is not None else None,
        read_bytes=mean(_READ),
    )


def _times(
    loader: Mapping[str, Any], asks: Sequence[Sequence[float]], used: Sequence[Sequence[float]], cpu_ns: float | None,
    measured_ns: float,
) -> Times | None:  # fmt: skip
    """The times to replay; None where too few are known. `cpu_ns`: the program's for each batch; `measured_ns`: the
    time from batch to batch.

    Where other programs take the cores the time without a core is part of a batch: it counts where the measured time is
    nearer then.
    """
    between = [then[_BEGIN] - ask[_END] for ask, then in pairwise(asks)]
    made = used if loader["workers"] else asks
    if not between or not made:
        return None
    own = [_cpu_a_batch(one["batches"]) for one in loader["processes"] if len(one["batches"]) > 1]
    both = cpu_ns if not loader["workers"] else statistics.fmean(own) + cpu_ns if own and cpu_ns else None
    whole = [one[_END] - one[_BEGIN] for one in made]
    alone = [ns - max(one[_QUEUED], 0) for ns, one in zip(whole, made, strict=True)]
    choice = [Times(ns, between, both, loader["prefetch"] or _PREFETCH, loader["cores"]) for ns in (alone, whole)]
    return min(choice, key=lambda times: abs(times.with_workers(loader["workers"])[0] - measured_ns))


def _cpu_a_batch(batches: Sequence[Sequence[float]]) -> float:
    """CPU time of a worker's process for each batch, sending it included."""
    return (batches[-1][_PROCESS] - batches[0][_PROCESS]) / (len(batches) - 1)


def _limit(share: float, batch: BatchTime | None) -> str:
    """Return what limits a step that waits for batches during `share` of it."""
    if share < _KEEPS_UP:
        return STEP
    if batch is None:
        return ""
    if batch.queued_ns is not None and batch.queued_ns > _SCARCE * batch.time_ns:
        return CORES
    if batch.other_ns is not None and batch.other_ns > _MOSTLY * batch.time_ns:
        return DISK if (batch.read_bytes or 0.0) >= _READS else WAITING
    return COMPUTING


def _predictions(times: Times, present: int, a_step: float, batch: BatchTime | None) -> list[WorkersPrediction]:
    """The step with other numbers of workers, up to where more make it no shorter."""
    found: list[WorkersPrediction] = []
    own = _limit(1.0, batch)
    for count in sorted({present, *NUMBERS}):
        ns, limit = times.with_workers(count)
        if count > present and found and a_step * ns > _GAIN * found[-1].step_ns:
            break
        limit = own if limit == COMPUTING and own in (DISK, WAITING) else limit
        found.append(WorkersPrediction(workers=count, step_ns=a_step * ns, limit=limit))
    return found


def _process(one: Mapping[str, Any], timed_ns: float) -> LoaderWorker:
    batch = _mean(_used(one["batches"], timed_ns))
    return LoaderWorker(worker=one["worker"], batches=len(one["batches"]), batch=batch, lines=_lines([one]))


def _lines(processes: Sequence[Mapping[str, Any]]) -> list[SourceLine]:
    """The lines of some workers by their share of all that was sampled, the largest first."""
    total: dict[tuple[str, int, str], float] = {}
    known: dict[tuple[str, int, str], Mapping[str, Any]] = {}
    for entry in (entry for process in processes for entry in process["lines"]):
        key = entry["file"], entry["line"], entry["function"]
        total[key] = total.get(key, 0.0) + entry["ns"]
        known[key] = max(known.get(key, entry), entry, key=lambda one: one["ns"])
    whole = sum(total.values())
    order = sorted(total, key=lambda key: -total[key])
    return [
        SourceLine(
            file=key[0], line=key[1], function=key[2], share=total[key] / whole, code=known[key]["code"],
            library=known[key]["library"],
        )
        for key in order if total[key] >= _LEAST * whole
    ]  # fmt: skip


def helps(known: Loading) -> WorkersPrediction | None:
    """The fewest workers that reach nearly the best step, where they shorten it by a twentieth or more."""
    enough = known.enough
    saves = enough is not None and enough.workers > known.workers and enough.step_ns < (1 - _KEEPS_UP) * known.step_ns
    return enough if saves else None


def sentences(known: Loading) -> Iterator[str]:
    """The time of a batch, the batches that stood ready, and the step with other numbers of workers."""
    batch, who = known.batch, "A worker" if known.workers else "The step's own thread"
    if batch is not None:
        parts = {"computing": batch.computing_ns, "without a free core": batch.queued_ns}
        parts["waiting for files or others"] = batch.other_ns
        shares = {name: (ns or 0.0) / batch.time_ns for name, ns in parts.items() if batch.time_ns}
        spent = listed([f"{percent(share)} {name}" for name, share in shares.items() if share >= _LEAST])
        reads = (
            f", and reads {units.text(batch.read_bytes, 'iB')} from disks" if (batch.read_bytes or 0) >= _READS else ""
        )
        yield f"{who} takes {units.text(batch.time_ns, 'ns')} a batch ({spent}){reads}."
    if known.ready is not None:
        yield f"{number(known.ready)} of at most {known.most_ready} batches stood ready when asked for (median)."
    more = helps(known)
    if more:
        present = units.many(known.workers, "worker") if known.workers else "none"
        yield (
            f"With {units.many(more.workers, 'worker')} the step would take {units.text(more.step_ns, 'ns')}, with "
            f"{present} it takes {units.text(known.step_ns, 'ns')}."
        )
