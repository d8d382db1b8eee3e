"""`perfkit report main.log`: training logs among what is reported on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.cli.parts import output
from perfkit.render.output import of_page, safe_name

if TYPE_CHECKING:
    from perfkit.cli.parts.output import Destination
    from perfkit.readers.training_log import TrainingLog

_SHOWN = 3  # damaged lines that are quoted
EVENTS = "tensorboard"


def report(logs: list[Path], wanted: Destination) -> None:
    """Report on training logs, one by one. Raises `InputError` for one that cannot be read."""
    from perfkit.readers import training_log

    for path in logs:
        _report(training_log.read_log(path), wanted)


def _report(log: TrainingLog, wanted: Destination) -> None:
    from perfkit.analysis.training import summarise
    from perfkit.render import scalars
    from perfkit.render.pages import training

    found = summarise(log.path.name, log.series, list(_warnings(log)))
    name = safe_name(found.title)
    made = of_page(found, training.page(found), f"report-{name}", csv=lambda: training.csv(found))
    wanted = replace(wanted, name="")
    links = []
    if wanted.folder:
        events = wanted.folder / EVENTS / name
        output.make_folder(events)
        if scalars.write_scalars(training.scalars(found), events):
            links.append(("TensorBoard", f"perfkit tensorboard {events.parent}"))
    output.put(made, wanted, links)


def _warnings(log: TrainingLog) -> Iterable[str]:
    from perfkit.render.cells import clean

    if log.damaged:
        quoted = "; ".join(f"line {number}: {clean(text, 60)!r}" for number, text in log.damaged[:_SHOWN])
        more = "" if len(log.damaged) <= _SHOWN else f" and {len(log.damaged) - _SHOWN} more"
        yield f"{len(log.damaged)} of {log.lines} lines are damaged and left out: {quoted}{more}"
    if log.restarts:
        steps = ", ".join(f"{step:,}" for step in log.restarts[:5])
        yield f"restarted at step {steps}: {log.overwritten:,} values of earlier lines are overwritten by later ones"
