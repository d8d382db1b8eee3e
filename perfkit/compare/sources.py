"""From what a person names to the sides of a comparison: run folders, profiles, measured comparisons, baselines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit import readers
from perfkit.compare.record import Measurement, is_measurement, read_measurement
from perfkit.errors import InputError, UsageError
from perfkit.run_folder import MANIFEST

if TYPE_CHECKING:
    from perfkit.compare.metrics import VerdictRule
    from perfkit.compare.sides import Side
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable

Progress = Callable[[str, str], None]  # of whom, and what is being done
ENDINGS = (".py",)  # of workload files: these are run, not read


def quiet(who: str, what: str) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Target:
    """A path that can be read, what it is called, and the backend or side wanted of it ("" for any)."""

    path: Path
    name: str
    wanted: str = ""


def target_of(path: Path) -> Target:
    """A path as a target."""
    return Target(path, _name(path))


def find(text: str) -> Target | None:
    """Return the target of `text`: PATH, PATH:BACKEND, BASELINE or BASELINE:BACKEND; None for an unknown one."""
    from perfkit.compare import baselines

    for name, wanted in ((text, ""), tuple(text.rpartition(":")[::2])):
        path = Path(name) if name else None
        if path is not None and path.exists() and path.suffix not in ENDINGS:
            return Target(path, _name(path), wanted)
        if path is not None and baselines.is_name(name) and (latest := baselines.latest(name)):
            return Target(latest.content, name, wanted)
    return None


def _name(path: Path) -> str:
    return path.resolve().name or str(path)


def load(target: Target, say: Progress = quiet) -> list[Side]:
    """The sides in `target`: one, or every measured backend where none is wanted by name. Of launches, which take
    seconds, `say` gets progress.

    Raises `InputError` for what cannot be read, or a backend that is missing.
    """
    from perfkit.compare import sides

    path = target.path.parent if target.path.name == MANIFEST else target.path
    if is_measurement(path):
        found = _measured(path, say)
    elif path.is_dir():
        found = _of_run(readers.read(path), path)  # type: ignore[arg-type]
    else:
        source = readers.read(path)
        found = [sides.of_table(readers.tables_of(source)["profile"], str(path), target.name)]
    if not target.wanted:
        return found
    chosen = [side for side in found if target.wanted in (side.label, side.backend.name)]
    if not chosen:
        known = ", ".join(side.label for side in found) or "none"
        raise InputError(f"{path} has no backend {target.wanted} that was measured.", f"It has: {known}.")
    return chosen[:1]


def _of_run(run: Run, path: Path) -> list[Side]:
    """The backends of a run that were measured."""
    from perfkit.analysis.report.analyse import analyse
    from perfkit.compare import sides

    report = analyse(run)
    names = [b.name for b in run.manifest.backends if b.timed and b.status != "unavailable"]
    if not names:
        raise InputError(f"{path} measured nothing.", "Run the workload again with a backend that works.")
    return [sides.of_report(run, report, name, name, str(path)) for name in names]


def _measured(path: Path, say: Progress) -> list[Side]:
    """The sides of a measured comparison."""
    from perfkit.compare import sides

    measurement = read_measurement(path)
    runs = {name: readers.read_run(path / name) for name in {s.run for s in measurement.sides} if name}
    found = []
    for place, side in enumerate(measurement.sides):
        _check(measurement, place, path)
        tables = list(_tables(measurement, place, path, partial(say, side.label)))
        say(side.label, "analysing the launches")
        found.append(sides.of_launches(measurement, place, runs.get(side.run), tables, str(path)))
    return found


def _tables(measurement: Measurement, place: int, path: Path, say: Callable[[str], None]) -> Iterator[KernelTable]:
    """The kernel tables of one side's launches."""
    from perfkit.table import KernelTable

    for number, launch in enumerate(measurement.launches, start=1):
        if launch.tables[place]:
            yield KernelTable.load(path / launch.tables[place])
            say(f"reading the launches · {number} of {len(measurement.launches)}")


def _check(measurement: Measurement, place: int, path: Path) -> None:
    by_side = [
        one
        for launch in measurement.launches
        for one in (launch.tables, launch.peak_memory_bytes, launch.warmup_ns, launch.steady_from)
    ]
    timed = [{turn.side for turn in launch.turns} for launch in measurement.launches]
    whole = set(range(len(measurement.sides)))
    if {len(one) for one in by_side} != {len(whole)} or any(sides != whole for sides in timed):
        raise InputError(f"{path} is damaged: a launch lacks a side.", "Measure again.")
    outside = [t for launch in measurement.launches for t in launch.tables if os.path.isabs(t) or ".." in Path(t).parts]
    if outside:
        raise InputError(f"{path} is damaged: {outside[0]} lies outside it.", "Measure again.")


def sides_of(texts: Sequence[str], say: Progress = quiet) -> list[Side]:
    """The sides that `texts` name, labelled so that they can be distinguished; `say` as for `load`.

    Raises `InputError` for what is missing, and `UsageError` where it is not clear which backends are meant.
    """
    loaded: list[tuple[Target, list[Side]]] = []
    for text in texts:
        target = find(text)
        if target is None:
            raise InputError(
                f"{text} is not a run folder, profile or saved baseline.", "`perfkit baseline list` shows them."
            )
        loaded.append((target, load(target, say)))
    if len(loaded) == 1:
        return loaded[0][1]
    for text, (_, found) in zip(texts, loaded, strict=True):
        if len(found) > 1:
            names = ", ".join(side.label for side in found)
            raise UsageError(f"{text} holds several backends: {names}.", f"Say which: {text}:{found[0].label}")
    return _labelled([(target, found[0]) for target, found in loaded])


def _labelled(found: Sequence[tuple[Target, Side]]) -> list[Side]:
    """Sides named by their folder, and by their backend too where that differs; a number where that is not enough."""
    backends = {side.backend.name for _, side in found}
    labels = []
    for target, side in found:
        same = len(backends) == 1 or (side.table is not None and side.manifest is None)
        label = target.name if same else f"{target.name}:{side.backend.name}"
        labels.append(label)
    for number, (label, (_, side)) in enumerate(zip(labels, found, strict=True), start=1):
        side.label = f"{label} ({number})" if labels.count(label) > 1 else label
    return [side for _, side in found]


def check_comparable(sides: Sequence[Side], anyway: bool) -> list[str]:
    """Return the differences that should not exist. Raises `InputError`, naming it, unless `anyway`."""
    from perfkit.compare.judge import incomparable

    found = []
    for side in sides[1:]:
        differs = incomparable(sides[0], side)
        if differs and not anyway:
            raise InputError(
                f"{side.label} cannot be compared with {sides[0].label}: they differ in {'; in '.join(differs)}.",
                "Measure both alike, or compare them all the same with --anyway.",
            )
        found += [f"{side.label}: {words}" for words in differs]
    return found


def _allocator(side: Side) -> str:
    settings = side.manifest.settings if side.manifest else None
    return f", all with the {settings.allocator} allocator" if settings and settings.device == "cpu" else ""


def how_of(sides: Sequence[Side], rule: VerdictRule) -> str:
    """Say how the sides were measured, with which allocator, and what the intervals therefore cover."""
    from perfkit.compare.metrics import allowance_of
    from perfkit.compare.sides import LAUNCH, ROUND

    steps = [side.step for side in sides if side.step]
    if len(steps) < 2:
        return ""
    together = len({one.origin for one in steps}) == 1
    allowed = max(allowance_of(steps[0], other, rule) for other in steps[1:])
    if together and steps[0].unit == LAUNCH:
        return f"{len(steps[0].values)} launches of fresh processes, the sides in turns (A B B A){_allocator(sides[0])}"
    if together:
        what = "rounds of fewer than six launches" if steps[0].unit == ROUND else "turns of one process a side"
        return f"{len(steps[0].values)} {what}: intervals allow {allowed:.0%} for what differs between processes"
    return f"measured at different times: intervals allow {allowed:.0%} for what differs between runs"
