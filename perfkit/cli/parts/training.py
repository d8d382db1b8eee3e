"""`perfkit report main.log`: training logs among what is reported on."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import InputError

if TYPE_CHECKING:
    from perfkit.analysis.training import Training
    from perfkit.readers.training_log import TrainingLog

_SHOWN = 3  # damaged lines that are quoted
EVENTS = "tensorboard"


def report_logs(
    paths: list[Path], out: Path | None, formats: Iterable[str], as_json: bool, counters: bool
) -> list[Path]:
    """Report on the training logs among `paths`; the other paths, in order.

    Raises `UsageError` for options that a log does not take.
    """
    from perfkit.errors import UsageError
    from perfkit.readers import training_log

    logs = [path for path in paths if path.is_file() and _is_log(path)]
    if logs and counters:
        raise UsageError(f"{logs[0]} is a training log, and --counters belongs to a profile.", "Leave it out.")
    for path in logs:
        _report(training_log.read_log(path), out, tuple(formats), as_json)
    return [path for path in paths if path not in logs]


def _is_log(path: Path) -> bool:
    from perfkit.readers import sniff, training_log

    try:
        return training_log.is_training_log(sniff.head_of(path).text)
    except InputError:  # reading it says what is wrong
        return False


def _report(log: TrainingLog, out: Path | None, formats: tuple[str, ...], as_json: bool) -> None:
    from perfkit.analysis.training import summarise
    from perfkit.cli.parts import pages
    from perfkit.render import json, page
    from perfkit.render.pages import training

    found = summarise(log.path.name, log.series, list(_warnings(log)))
    written = _write(found, out, formats) if out else []
    if as_json:
        sys.stdout.write(json.render(found))
        return
    page.show(training.page(found))
    for path in written:
        if path.suffix == ".html":
            print(f"Report:      {path}")
        elif path.is_dir():
            print(f"TensorBoard: perfkit tensorboard {path}")
    if not written:
        print(pages.NO_FILES)


def _warnings(log: TrainingLog) -> Iterable[str]:
    from perfkit.render.cells import clean

    if log.damaged:
        quoted = "; ".join(f"line {number}: {clean(text, 60)!r}" for number, text in log.damaged[:_SHOWN])
        more = "" if len(log.damaged) <= _SHOWN else f" and {len(log.damaged) - _SHOWN} more"
        yield f"{len(log.damaged)} of {log.lines} lines are damaged and left out: {quoted}{more}"
    if log.restarts:
        steps = ", ".join(f"{step:,}" for step in log.restarts[:5])
        yield f"restarted at step {steps}: {log.overwritten:,} values of earlier lines are overwritten by later ones"


def _write(found: Training, out: Path, formats: tuple[str, ...]) -> list[Path]:
    """Write the report's files and event files into `out`; what was written, the events' folder last."""
    from perfkit.cli.parts import pages
    from perfkit.cli.parts.shown import make_folder
    from perfkit.render import safe_name, scalars
    from perfkit.render.pages import training

    name = safe_name(found.title)
    made = training.page(found)
    written = pages.write(made, found, out, f"report-{name}", formats, csv=lambda: training.csv(found))
    events = out / EVENTS / name
    make_folder(events)
    return [*written, events.parent] if scalars.write_scalars(training.scalars(found), events) else written
