"""`perfkit report main.log`: training logs among what is reported on."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

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

    logs = [path for path in paths if path.is_file() and training_log.is_training_log(path)]
    if logs and counters:
        raise UsageError(f"{logs[0]} is a training log, and --counters belongs to a profile.", "Leave it out.")
    for path in logs:
        _report(training_log.read_log(path), out, tuple(formats), as_json)
    return [path for path in paths if path not in logs]


def _report(log: TrainingLog, out: Path | None, formats: tuple[str, ...], as_json: bool) -> None:
    from perfkit.analysis.training import summarise

    found = summarise(log.path.name, log.series, list(_warnings(log)))
    written = _write(found, out, formats) if out else []
    if as_json:
        sys.stdout.write(_json(found))
        return
    from rich.console import Console

    from perfkit.render import page
    from perfkit.render.pages import training

    width = None if sys.stdout.isatty() else page.WIDTH
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    page.show(training.page(found), console)
    for path in written:
        if path.suffix == ".html":
            console.print(f"Report:      {path}", soft_wrap=True)
        elif path.is_dir():
            console.print(f"TensorBoard: perfkit tensorboard {path}", soft_wrap=True)
    if not written:
        console.print("No files were written: --out FOLDER writes the report as HTML and more.", soft_wrap=True)


def _warnings(log: TrainingLog) -> Iterable[str]:
    from perfkit.render.cells import clean

    if log.damaged:
        quoted = "; ".join(f"line {number}: {clean(text, 60)!r}" for number, text in log.damaged[:_SHOWN])
        more = "" if len(log.damaged) <= _SHOWN else f" and {len(log.damaged) - _SHOWN} more"
        yield f"{len(log.damaged)} of {log.lines} lines are damaged and left out: {quoted}{more}"
    if log.restarts:
        steps = ", ".join(f"{step:,}" for step in log.restarts[:5])
        yield f"restarted at step {steps}: {log.overwritten:,} values of earlier lines are overwritten by later ones"


def _json(found: Training) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def _write(found: Training, out: Path, formats: tuple[str, ...]) -> list[Path]:
    """Write the report's files and event files into `out`; what was written, the events' folder last."""
    from perfkit.cli.parts.shown import make_folder
    from perfkit.render import page, safe_name, scalars
    from perfkit.render.pages import training
    from perfkit.run_folder import write_whole

    make_folder(out)
    made = training.page(found)
    render = {
        "html": lambda: page.render_html(made),
        "md": lambda: page.render_markdown(made),
        "txt": lambda: page.render_text(made),
        "json": lambda: _json(found),
        "csv": lambda: training.csv(found),
    }
    stem = f"report-{safe_name(found.title)}"
    written = []
    for name in formats:
        if name in render:
            path = out / f"{stem}.{name}"
            write_whole(path, render[name]())
            written.append(path)
    events = out / EVENTS / safe_name(found.title)
    make_folder(events)
    return [*written, events.parent] if scalars.write_scalars(training.scalars(found), events) else written
