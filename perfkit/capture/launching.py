"""Measuring several sides in turns: launches of fresh processes, each side's steps timed A B B A, then profiled so.

    launch    a fresh process for each side, all alive together: what a process keeps for its whole life (where its
              memory lies, what its compiler chose) is drawn anew, and so becomes part of the spread
    warm-up   the first step of all sides at the same time, for it compiles; then until the steps are steady
              (`perfkit.statistics.series.warmup_end`), not a fixed number
    round     every side forwards, then every side backwards: drift that is even over a round cancels
    turn      a few steps of one side in a row, after one that is not counted; how many, each launch says from its own
              warm-up

Which side begins is drawn by lot for each launch, from a fixed seed: where two sides are the same program, either sign
of the difference is as likely, whatever the machine does, and the signed ranks are exact. Turns as long as the first
launch's, in all launches, would break that: on a busy machine it took 66 steps a turn of one side and 10 of its equal,
and medians of many steps and of few differ where the times are skewed.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from perfkit.capture import memory
from perfkit.capture.child import Child
from perfkit.errors import RunFailed
from perfkit.launches import LAUNCHES, Launch, Turn
from perfkit.run_folder import KERNELS, Settings
from perfkit.statistics import ranks, series
from perfkit.statistics.turns import PARTS

Progress = Callable[[str, str], None]

FIRST_LAUNCHES = 18  # the fewest that show an effect in ten tests where one launch contradicts all others
WARMUP_STEPS = 60  # at most
# A processor changes its pace for a tenth of a second at a time: many steps, in short parts, meet every pace.
_MOST_PROFILED = 120  # steps, where they are short


@dataclass(frozen=True)
class Program:
    """One side: what it is called, what it runs, and on which backend (a name, or a file's path)."""

    label: str
    settings: Settings
    backend: str


@dataclass(frozen=True)
class Plan:
    """How much is measured. With a `precision` (a share) launches go on until every ratio to the first side is known to
    that, plus or minus, or `time_limit` (seconds) is over. The rule looks at the interval's width alone, never at
    whether it leaves out 1: it favours no verdict."""

    launches: int = FIRST_LAUNCHES
    precision: float | None = None
    time_limit: float = 1800.0
    rounds: int = 2
    turn_seconds: float = 0.15
    warmup_seconds: float = 3.0
    profiled_steps: int = 4
    seed: int = 0


def measure(programs: Sequence[Program], folder: Path, plan: Plan, progress: Progress) -> tuple[list[Launch], str]:
    """Measure `programs`, kernel tables below `folder`; the launches, and why there are as many as there are.

    Raises `RunFailed` when a side fails, or the machine's memory does not hold all sides at once.
    """
    lots = random.Random(plan.seed)
    started = time.monotonic()
    launches: list[Launch] = []
    while True:
        where = f"launch {len(launches) + 1}"
        order = lots.sample(range(len(programs)), len(programs))
        target = folder / LAUNCHES / f"{len(launches):03d}"
        say = partial(_say, progress, where)
        launches.append(_launch(programs, order, target, folder, plan, say))
        stop = _stop(launches, len(programs), plan, time.monotonic() - started)
        if stop:
            return launches, stop


def _say(progress: Progress, launch: str, text: str) -> None:
    """Each launch is a stage; what it does is how far it is."""
    progress(launch, f"measuring · {text}")


def _stop(launches: Sequence[Launch], sides: int, plan: Plan, seconds: float) -> str:
    """Why to stop now; "" to go on."""
    n = len(launches)
    per_launch = seconds / n
    if plan.precision is None and n >= plan.launches:
        return f"{n} launches, as planned"
    if plan.precision is not None and n >= plan.launches and reached(launches, sides, plan.precision):
        return f"the precision of {plan.precision:.2%} was reached after {n} launches"
    if seconds + per_launch > plan.time_limit:
        return f"the time limit of {plan.time_limit:.0f} s ended it after {n} launches"
    return ""


def reached(launches: Sequence[Launch], sides: int, precision: float) -> bool:
    """Whether half the interval of every side's ratio to the first is at most `precision`."""
    centres = [[_centre(launch, side) for launch in launches] for side in range(sides)]
    logs = np.log(np.array(centres))
    return all(ranks.paired(list(logs[side] - logs[0])).half <= precision for side in range(1, sides))


def _centre(launch: Launch, side: int) -> float:
    return float(np.median([ns for turn in launch.turns if turn.side == side for ns in turn.samples_ns]))


def _launch(
    programs: Sequence[Program],
    order: Sequence[int],
    target: Path,
    folder: Path,
    plan: Plan,
    say: Callable[[str], None],
) -> Launch:
    """Start, warm up, time and profile all sides once."""
    with contextlib.ExitStack() as stack:
        children = _start(stack, programs, order, target, say)
        say("warming up")
        warmup: list[list[float]] = [[] for _ in programs]
        for side in order:
            children[side].begin("settle", steps=1)
        for side in order:
            warmup[side] = children[side].result()
        for side in order:
            _warm_up(children[side], warmup[side], plan)
        sizes = [_turn_steps(times, plan) for times in warmup]
        for side in order:
            children[side].call("reset_peak_memory")
        say("timing")
        turns = [
            Turn(side, number, children[side].call("time", steps=sizes[side], settle=1))
            for number in range(plan.rounds)
            for side in (*order, *reversed(order))
        ]
        peaks = [child.call("peak_memory")[0] for child in children]
        tables, unusable = [""] * len(programs), ""
        if plan.profiled_steps:
            say("profiling")
            _profile(children, order, [_profiled_steps(size, plan) for size in sizes])
            say("reading the traces")
            tables, unusable = _read(children, target, folder)
        return Launch(
            turns=turns,
            warmup_ns=warmup,
            steady_from=[series.warmup_end(times) for times in warmup],
            peak_memory_bytes=peaks,
            tables=tables,
            unusable=unusable,
        )


def _start(
    stack: contextlib.ExitStack,
    programs: Sequence[Program],
    order: Sequence[int],
    target: Path,
    say: Callable[[str], None],
) -> list[Child]:
    """Processes by side, started and prepared in the order drawn, at the same time."""
    say("starting processes")
    started: dict[int, Child] = {}
    for side in order:
        program = programs[side]
        environment = {"CUDA_LAUNCH_BLOCKING": "1"} if program.settings.launch_blocking else {}
        log = target / f"{side}" / "log.txt"
        started[side] = stack.enter_context(Child(program.label, log, environment))
        started[side].begin("prepare", settings=program.settings, backend=program.backend)
    children = [started[side] for side in range(len(programs))]
    facts = [child.result()[0] for child in children]
    need = sum(f.parameters * 4.0 * (4 if p.settings.training else 2) for f, p in zip(facts, programs, strict=True))
    available = memory.available_bytes()
    if available is not None and need > available:
        raise RunFailed(
            f"Memory does not hold all {len(programs)} sides at once.",
            "Measure each alone with `perfkit run`, and compare the run folders.",
        )
    return children


def _warm_up(child: Child, times: list[float], plan: Plan) -> None:
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


def _turn_steps(warmup: Sequence[float], plan: Plan) -> int:
    step = float(np.median(warmup[len(warmup) // 2 :]))
    return max(1, min(100, round(plan.turn_seconds * 1e9 / step)))


def _profiled_steps(turn: int, plan: Plan) -> int:
    """As many as four turns of `turn` steps have; fewer where they are long, and where they are short."""
    return max(plan.profiled_steps, min(_MOST_PROFILED, 4 * turn)) if turn > 1 else plan.profiled_steps


def _profile(children: Sequence[Child], order: Sequence[int], steps: Sequence[int]) -> None:
    """Record `steps` of each side, in parts that take turns, there and back: what slows the machine for a while then
    falls on a part of every side's steps, and not on all steps of one.

    No more parts than steps: of long steps, four a side, all would fall on ways back.
    """
    for side in order:
        children[side].call("start_recording", steps=steps[side])
    parts = min(PARTS, max(steps))
    for part in range(parts):
        for side in order if part % 2 == 0 else reversed(order):
            count = steps[side] * (part + 1) // parts - steps[side] * part // parts
            if count:
                children[side].call("record_steps", steps=count)
    for child in children:
        child.call("finish_recording")


def _read(children: Sequence[Child], target: Path, folder: Path) -> tuple[list[str], str]:
    """Let all sides read what they recorded, at the same time; the paths of their kernel tables below `folder`.

    The traces are not kept. Where that of any side is unusable none has a table, for launches are compared in pairs;
    then the second value says why.
    """
    folders = [target / f"{side}" for side in range(len(children))]
    for child, own in zip(children, folders, strict=True):
        child.begin("read_recording", folder=str(own))
    unusable = []
    for child, own in zip(children, folders, strict=True):
        found = child.result()
        (own / found["trace"]).unlink(missing_ok=True)
        unusable += [f"{child.name}: {found['unusable']}"] if found["unusable"] else []
    if unusable:
        return [""] * len(folders), " ".join(unusable)
    return [str((own / KERNELS).relative_to(folder)) for own in folders], ""
