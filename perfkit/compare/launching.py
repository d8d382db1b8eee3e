"""Measuring several sides in turns: launches of fresh processes, each side's steps timed A B B A, then profiled so.

    launch    a fresh process for each side, all alive together: what a process keeps for its whole life (where its
              memory is, what its compiler chose) is drawn again, and so becomes part of the spread
    start     processes start and take their first step, which compiles, two launches at a time where memory holds them,
              and as many processes as there are cores. What is not being measured waits, and takes nothing
    warm-up   until the steps are steady (`perfkit.statistics.series.warmup_end`), not a fixed number
    round     every side forwards, then every side backwards: drift that is even over a round cancels
    turn      a few steps of one side in a row, after one that is not counted where steps are short: it finds the other
              side's caches; how many, each launch says from its own warm-up

How many launches there are, `perfkit.compare.stopping` says.

The side that begins is random for each launch, from a fixed seed: where two sides are the same program, either sign
of the difference is as likely, whatever the machine does, and the signed ranks are exact. Turns as long as the first
launch's, in all launches, would break that: on a busy machine it took 66 steps a turn of one side and 10 of its equal,
and medians of many steps and of few differ where the times are skewed.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from perfkit.compare import settled, stopping
from perfkit.compare.record import LAUNCHES, RecordedLaunch, Turn
from perfkit.compare.stopping import StoppingRule
from perfkit.errors import RunFailed
from perfkit.hardware.cpu import read_cpu
from perfkit.run import memory
from perfkit.run.child import Child
from perfkit.run_folder import KERNELS, Settings
from perfkit.statistics import series
from perfkit.statistics.interleaved import PARTS
from perfkit.statistics.verdicts import Judgement

Progress = Callable[[str, str], None]

TOGETHER = 2  # launches that start at the same time
# From this step time on a launch has one round of turns that do not settle, and profiles this many steps a side.
LONG_STEP_NS, LONG_PROFILE = 0.4e9, 2
WARMUP_STEPS = 60  # at most
# A processor changes its pace for a tenth of a second at a time: many steps, in short parts, meet every pace.
_MOST_PROFILED = 2 * PARTS  # steps, where they are short


@dataclass(frozen=True)
class SideProgram:
    """One side: what it is called, what it runs, on which backend (a name, or a file's path), and in which folder."""

    label: str
    settings: Settings
    backend: str
    folder: Path | None = None


def measure(
    programs: Sequence[SideProgram],
    folder: Path,
    plan: StoppingRule,
    progress: Progress,
    peaks: Sequence[float | None] = (),
) -> tuple[list[RecordedLaunch], str]:
    """Measure `programs`, kernel tables below `folder`; return the launches, and why there are as many as there are.

    `peaks` are the sides' peaks of memory in bytes, where an earlier run measured them. Raises `RunFailed` when a side
    fails, or the machine's memory does not hold all sides at once.
    """
    lots = random.Random(plan.seed)
    started = time.monotonic()
    launches: list[RecordedLaunch] = []
    while True:
        most = min(_together(programs, peaks), plan.until_look(len(launches)))
        numbers = range(len(launches), len(launches) + most)
        orders = [lots.sample(range(len(programs)), len(programs)) for _ in numbers]
        launches += _launches(programs, orders, numbers, folder, plan, progress)
        peaks = launches[-1].peak_memory_bytes
        tested = partial(_parts, programs, launches, folder, plan, progress) if plan.profiled_steps else None
        stop = stopping.why(launches, len(programs), plan, time.monotonic() - started, tested)
        if stop:
            return launches, stop


def _parts(
    programs: Sequence[SideProgram],
    launches: Sequence[RecordedLaunch],
    folder: Path,
    plan: StoppingRule,
    progress: Progress,
) -> list[list[Judgement]]:
    """The parts of each side against the first's, by the launches so far."""
    progress(f"launch {len(launches)}", "looking at the parts of equal steps")
    return settled.parts_of(folder, [p.label for p in programs], launches, plan.share(len(launches)))


def _together(programs: Sequence[SideProgram], peaks: Sequence[float | None]) -> int:
    """Return the number of launches that may start at the same time: one until its memory is known, and on a GPU, whose
    memory the processes would share."""
    if not peaks or any(p.settings.device != "cpu" for p in programs):
        return 1
    need = sum(peak or math.inf for peak in peaks)
    return TOGETHER if need * TOGETHER < (memory.available_bytes() or 0) else 1


def _say(progress: Progress, launch: int, text: str) -> None:
    """Each launch is a stage; what it does is how far it is."""
    progress(f"launch {launch + 1}", f"measuring · {text}")


def _launches(
    programs: Sequence[SideProgram],
    orders: Sequence[Sequence[int]],
    numbers: Sequence[int],
    folder: Path,
    plan: StoppingRule,
    progress: Progress,
) -> list[RecordedLaunch]:
    """Start all sides of the launches `numbers` at the same time, measure one launch after the other, then read what
    all of them recorded."""
    targets = [folder / LAUNCHES / f"{number:03d}" for number in numbers]
    says = [partial(_say, progress, number) for number in numbers]
    with contextlib.ExitStack() as stack:
        says[0]("starting processes")
        groups = [_start(stack, programs, *one) for one in zip(orders, targets, strict=True)]
        for children in groups:
            _check_memory(children, programs)
        first = _first_steps(groups, read_cpu().usable)
        made = [_launch(*one, plan) for one in zip(groups, orders, first, says, strict=True)]
        if plan.profiled_steps:
            says[-1]("reading the traces")
            tables = _read(groups, targets, folder)
            made = [
                msgspec.structs.replace(one, tables=paths, unusable=why)
                for one, (paths, why) in zip(made, tables, strict=True)
            ]
    return made


def _launch(
    children: Sequence[Child],
    order: Sequence[int],
    warmup: list[list[float]],
    say: Callable[[str], None],
    plan: StoppingRule,
) -> RecordedLaunch:
    """Warm up, time and profile all sides once; `warmup` has the first step of each, in ns."""
    say("warming up")
    for side in order:
        _warm_up(children[side], warmup[side], plan)
    sizes = [_turn_steps(times, plan) for times in warmup]
    long = max(map(_settled, warmup)) > LONG_STEP_NS
    for side in order:
        children[side].call("reset_peak_memory")
    say("timing")
    turns = [
        Turn(side, number, children[side].call("time", steps=sizes[side], settle=0 if long else 1))
        for number in range(1 if long else plan.rounds)
        for side in (*order, *reversed(order))
    ]
    peaks = [child.call("peak_memory")[0] for child in children]
    if plan.profiled_steps:
        say("profiling")
        most = min(LONG_PROFILE, plan.profiled_steps)
        _profile(children, order, [most if long else _profiled_steps(size, plan) for size in sizes], long)
    return RecordedLaunch(
        turns=turns,
        warmup_ns=warmup,
        steady_from=[series.warmup_end(times) for times in warmup],
        peak_memory_bytes=peaks,
        tables=[""] * len(children),
    )


def _start(
    stack: contextlib.ExitStack, programs: Sequence[SideProgram], order: Sequence[int], target: Path
) -> list[Child]:
    """Processes by side, started in the order drawn; each builds its model and program."""
    started: dict[int, Child] = {}
    for side in order:
        program = programs[side]
        environment = {"CUDA_LAUNCH_BLOCKING": "1"} if program.settings.launch_blocking else {}
        log = target / f"{side}" / "log.txt"
        started[side] = stack.enter_context(Child(program.label, log, environment, folder=program.folder))
        started[side].begin("prepare", settings=program.settings, backend=program.backend)
    return [started[side] for side in range(len(programs))]


def _check_memory(children: Sequence[Child], programs: Sequence[SideProgram]) -> None:
    """Wait until all sides of a launch are prepared. Raises `RunFailed` where memory does not hold them at once."""
    facts = [child.result()[0] for child in children]
    need = sum(f.parameters * 4.0 * (4 if p.settings.training else 2) for f, p in zip(facts, programs, strict=True))
    available = memory.available_bytes()
    if available is not None and need > available:
        raise RunFailed(
            f"Memory does not hold all {len(programs)} sides at once.",
            "Measure each alone with `perfkit run`, and compare the run folders.",
        )


def _first_steps(groups: Sequence[Sequence[Child]], cores: int) -> list[list[list[float]]]:
    """The first step of every process, which compiles: ns by launch and side, in lists.

    As many at a time as there are `cores`, side after side: a compiler keeps one busy, and steps that compute on all of
    them would wait for each other's threads.
    """
    taken: list[list[list[float]]] = [[] for _ in groups]
    todo = [(launch, children[side]) for side in range(len(groups[0])) for launch, children in enumerate(groups)]
    for first in range(0, len(todo), cores):
        some = todo[first : first + cores]
        for _, child in some:
            child.begin("first_step")
        for launch, child in some:
            taken[launch].append(child.result())
    return taken


def _warm_up(child: Child, times: list[float], plan: StoppingRule) -> None:
    """Steps until they are steady; their times in ns are added to `times`, which has the first."""
    chunk = 1
    while len(times) < WARMUP_STEPS:
        times += child.call("settle", steps=chunk)
        end = series.warmup_end(times)
        if sum(times) > plan.warmup_seconds * 1e9 and len(times) >= 4:
            break
        if end is not None and len(times) >= max(2 * series.STEADY, 2 * end):
            break
        chunk = series.STEADY if sum(times) < plan.warmup_seconds * 0.5e9 else 1


def _settled(warmup: Sequence[float]) -> float:
    return float(np.median(warmup[len(warmup) // 2 :]))


def _turn_steps(warmup: Sequence[float], plan: StoppingRule) -> int:
    return max(1, min(100, round(plan.turn_seconds * 1e9 / _settled(warmup))))


def _profiled_steps(turn: int, plan: StoppingRule) -> int:
    """As many as four turns of `turn` steps have; fewer where they are long, and where they are short."""
    return max(plan.profiled_steps, min(_MOST_PROFILED, 4 * turn)) if turn > 1 else plan.profiled_steps


def _profile(children: Sequence[Child], order: Sequence[int], steps: Sequence[int], long: bool) -> None:
    """Record `steps` of each side, in parts that take turns, there and back: what slows the machine for a while then
    falls on a part of every side's steps, and not on all steps of one.

    No more parts than steps: of long steps, four a side, all would fall on ways back.
    """
    beside = {"beside": 0} if long else {}  # long steps were timed a moment ago, and are minutes of a comparison
    for side in order:
        children[side].call("start_recording", steps=steps[side], **beside)
    parts = min(PARTS, max(steps))
    for part in range(parts):
        for side in order if part % 2 == 0 else reversed(order):
            count = steps[side] * (part + 1) // parts - steps[side] * part // parts
            if count:
                children[side].call("record_steps", steps=count)
    for child in children:  # nothing is timed any more: all at the same time
        child.begin("finish_recording")
    for child in children:
        child.result()


def _read(groups: Sequence[Sequence[Child]], targets: Sequence[Path], folder: Path) -> list[tuple[list[str], str]]:
    """Let all sides of all launches read what they recorded, at the same time; by launch the paths of their kernel
    tables below `folder`.

    The traces are not kept. Where that of any side is unusable none of its launch has a table, for launches are
    compared in pairs; then the second value says why.
    """
    own = [[target / f"{side}" for side in range(len(group))] for group, target in zip(groups, targets, strict=True)]
    for children, folders in zip(groups, own, strict=True):
        for child, where in zip(children, folders, strict=True):
            child.begin("read_recording", folder=str(where), keep_trace=False)
    return [_tables(children, folders, folder) for children, folders in zip(groups, own, strict=True)]


def _tables(children: Sequence[Child], folders: Sequence[Path], folder: Path) -> tuple[list[str], str]:
    """The tables of one launch, as `_read` says."""
    unusable = []
    for child in children:
        found = child.result()
        unusable += [f"{child.name}: {found['unusable']}"] if found["unusable"] else []
    if unusable:
        return [""] * len(folders), " ".join(unusable)
    return [str((own / KERNELS).relative_to(folder)) for own in folders], ""
