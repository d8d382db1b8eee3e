"""Comparisons that are measured now: `perfkit compare WORKLOAD --backend A,B`, and its self-test."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.cli.parts import options
from perfkit.cli.parts.shown import need_torch, progress
from perfkit.errors import PerfkitError, UsageError
from perfkit.run_folder import usual_folder

if TYPE_CHECKING:
    from perfkit.compare.launching import SideProgram
    from perfkit.compare.stopping import StoppingRule

CHECKED_STEPS = 3  # timed while results are checked: what is compared, the launches time
ALARMS = 0.05  # more false alarms than this fail the self-test
SELF_TEST = "mlp"  # the workload of the self-test where none is named


def plan(
    launches: int, precision: float | None, time_limit: float, early: bool = True, resolution: float | None = None
) -> StoppingRule:
    """Return how much to measure. Raises `UsageError` for invalid numbers."""
    from perfkit.compare.stopping import EARLY, StoppingRule
    from perfkit.statistics.verdicts import RESOLUTION

    if launches < 1:
        raise UsageError("--launches must be at least 1.", "Six are the fewest that can show anything.")
    if precision == 0:
        raise UsageError("--precision must be above 0.", "Write --precision 1%.")
    return StoppingRule(
        launches=launches, precision=precision, time_limit=time_limit, early=EARLY if early else 0,
        resolution=RESOLUTION if resolution is None else resolution,
    )  # fmt: skip


def wanted(texts: Sequence[str], backend: str) -> bool:
    """Return whether `texts` are workloads to be measured. Raises `UsageError` where some are and some are not."""
    from perfkit.compare import sources

    stored = [] if backend else [text for text in texts if sources.find(text) is not None]
    if stored and len(stored) < len(texts):
        other = next(text for text in texts if text not in stored)
        if _is_workload(other):
            raise UsageError(
                f"{stored[0]} was measured before, and {other} would be now.",
                "Measure the workload by itself first, then compare the two folders.",
            )
        return False  # and the error says what is missing
    return bool(backend) or (not stored and all(map(_is_workload, texts)))


def _is_workload(text: str) -> bool:
    from perfkit.workloads import loader

    if text.endswith(".py"):
        return True
    try:
        loader.find(text)
    except PerfkitError:
        return False
    return True


def folder_for(out: Path | None, texts: Sequence[str]) -> Path:
    """Return the folder of the measurement."""
    name = "-".join(Path(text).stem for text in texts)[:60]
    return out or usual_folder(f"compare-{name}")


def programs(
    texts: Sequence[str], backend: str, asked: dict[str, Any], skip: bool
) -> list[tuple[SideProgram, str, dict[str, str]]]:
    """A side for each workload, list of executors and backend: the program, the run folder that it belongs to, and what
    is unavailable."""
    from perfkit.compare.launching import SideProgram
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    given = dict(asked)
    lists = list(dict.fromkeys(options.executors(text) for text in given.pop("executors"))) or [()]
    named = options.named(options.names(backend))
    stems = [Path(text).stem for text in texts]
    titles = stems if len(set(stems)) == len(stems) else list(texts)
    found = []
    runs = list(itertools.product(range(len(texts)), lists))
    for run, (number, executors) in enumerate(runs, start=1):
        chosen = loader.find(texts[number])
        settings = resolve_settings(
            chosen,
            executors=executors,
            steps=CHECKED_STEPS,
            warmup=1,
            **given,
        )
        unavailable = options.unavailable_of(named, settings, skip)
        folder = "run" if len(runs) == 1 else f"run-{run}"
        by = ",".join(executors) or "default executors"
        for name, found_by in named.items():
            backends = len(named) > 1 or len(runs) == 1
            words = [titles[number] if len(texts) > 1 else "", name if backends else "", by if len(lists) > 1 else ""]
            label = " ".join(filter(None, words))
            if name not in unavailable:
                found.append((SideProgram(label, settings, found_by), folder, unavailable))
    return found


def measure_into(
    folder: Path, texts: Sequence[str], backend: str, asked: dict[str, Any], plan: StoppingRule, check: bool,
    skip: bool, overwrite: bool,
) -> None:  # fmt: skip
    """Check every side, then measure them in turns, into `folder`, which appears when it is whole.

    Raises `UsageError` when `folder` holds something already.
    """
    from perfkit.compare.recording import measure_into as measure

    need_torch("perfkit compare")
    sides = programs(texts, backend, asked, skip)
    if not sides:
        raise UsageError("No backend can run here.", "`perfkit doctor` says why.")
    with progress() as say:
        measure(folder, sides, plan, check, overwrite, say)


def self_test(
    texts: Sequence[str], backend: str, asked: dict[str, Any], plan: StoppingRule, tries: int, as_json: bool
) -> int:
    """Compare a workload with itself `tries` times; 1 when more than 5 % of the comparisons find a difference."""
    need_torch("perfkit compare --self-test")
    if len(texts) > 1 or tries < 1:
        raise UsageError("--self-test takes one workload, and at least one try.", "perfkit compare --self-test mlp")
    sides = programs(texts or [SELF_TEST], backend, asked, False)
    if len(sides) != 1:
        raise UsageError("--self-test takes one backend.", "Name the one to be tested with --backend.")
    program = sides[0][0]
    with progress() as say:
        found = [_try(program, plan, number, tries, say) for number in range(tries)]
    return _report(program, found, as_json)


def _try(
    program: SideProgram, plan: StoppingRule, number: int, of: int, say: Callable[[str, str], None]
) -> dict[str, Any]:
    """One A/A comparison, in a folder that goes away."""
    import dataclasses

    from perfkit.compare import recording
    from perfkit.compare.judge import compare
    from perfkit.compare.sources import load, target_of

    twins = [dataclasses.replace(program, label=label) for label in ("A", "A again")]
    with tempfile.TemporaryDirectory(prefix="perfkit-self-test-") as scratch:
        folder = Path(scratch) / "pair"
        own = dataclasses.replace(plan, seed=program.settings.seed + number)
        recording.measure_into(
            folder, [(twin, "", {}) for twin in twins], own, False, False,
            lambda who, what: say(f"try {number + 1} of {of}", f"comparing · {who}, {what}"),
        )  # fmt: skip
        found = compare(load(target_of(folder)))
        shutil.rmtree(folder)
    pair = found.pairs[0]
    judged = {t.metric: t.judgement for t in (pair.step, *pair.tested)}
    return {name: {"verdict": j.verdict, "ratio": j.ratio, "low": j.low, "high": j.high} for name, j in judged.items()}


def _report(program: SideProgram, found: Sequence[dict[str, Any]], as_json: bool) -> int:
    from perfkit.render import json
    from perfkit.statistics.verdicts import BETTER, WORSE

    tries = len(found)
    parts = [[j["verdict"] for metric, j in one.items() if metric != "step"] for one in found]
    wrong = (BETTER, WORSE)
    false = [sum(one["step"]["verdict"] in wrong for one in found), sum(not set(v).isdisjoint(wrong) for v in parts)]
    rates = {"step": false[0] / tries, "parts": false[1] / tries}
    if as_json:
        record = {"workload": program.settings.workload, "tries": tries, "false_alarms": rates, "comparisons": found}
        sys.stdout.write(json.render(record))
    else:
        verdicts = [one["step"]["verdict"] for one in found]
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
        print(f"{program.settings.workload} against itself, {tries} comparisons: {counts}.")
        print(f"False alarms: {false[0]} in the step ({rates['step']:.1%}), {false[1]} in a part, memory or efficiency "
              f"({rates['parts']:.1%}); at most {ALARMS:.0%} are allowed.")  # fmt: skip
    return 1 if max(rates.values()) > ALARMS else 0
