"""A workload before and after a change: outputs, loss, gradients and updates against one reference, then launches.

The reference is the model before the change, in fp64. So a change that is consistent in itself, and wrong, is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from perfkit import correctness
from perfkit.compare import launching
from perfkit.compare.launching import SideProgram
from perfkit.compare.stopping import StoppingRule
from perfkit.errors import PerfkitError, RunFailed
from perfkit.run.child import Child
from perfkit.run.stages.reference import REFERENCE, Reference, checked_steps, run_reference, verdict_of
from perfkit.run_folder import Correctness, Settings
from perfkit.tries.interleaved import MeasuredSides, Progress
from perfkit.tries.printed import RIGHT, UNKNOWN, WRONG, Checked
from perfkit.tries.trees import Tree


@dataclass(frozen=True)
class TriedWorkload:
    """A workload as it is before the change: its settings, whose paths lead into that copy, and the backend."""

    settings: Settings
    backend: str

    def programs(self, sides: Sequence[Tree]) -> list[SideProgram]:
        """Both sides: the same settings, with paths into either copy."""
        return [SideProgram(side.label, self._within(side, sides[0]), self._at(self.backend, side, sides[0]), side.cwd)
                for side in sides]  # fmt: skip

    def _within(self, side: Tree, before: Tree) -> Settings:
        values = {name: self._at(value, side, before) for name, value in msgspec.structs.asdict(self.settings).items()}
        return Settings(**values)

    def _at(self, value: Any, side: Tree, before: Tree) -> Any:
        if isinstance(value, tuple):
            return tuple(self._at(one, side, before) for one in value)
        place = str(before.root)
        inside = isinstance(value, str) and (value == place or value.startswith(f"{place}/"))
        return f"{side.root}{value[len(place) :]}" if inside else value


def measure(
    known: TriedWorkload, sides: Sequence[Tree], plan: StoppingRule, scratch: Path, say: Progress
) -> MeasuredSides:
    """Check both sides against the reference, then measure them in turns where the second one is right.

    Raises `RunFailed` where the workload does not run before the change.
    """
    before, after = known.programs(sides)
    reference, found = _checked(before, after, scratch, say)
    steps = "a step is one of the workload's"
    if isinstance(found, PerfkitError):
        return MeasuredSides([], "", Checked(status=UNKNOWN, how="", why="the workload failed"), steps, found.message)
    checked = _of(found, reference)
    if checked.status == WRONG:
        return MeasuredSides([], "", checked, steps)
    try:
        launches, stopped = launching.measure([before, after], scratch, replace(plan, profiled_steps=0), say)
    except PerfkitError as error:
        if error.message.startswith("after"):  # its process died
            return MeasuredSides([], "", checked, steps, error.message)
        raise
    return MeasuredSides(launches, stopped, checked, steps)


def _checked(
    before: SideProgram, after: SideProgram, scratch: Path, say: Progress
) -> tuple[Reference, Correctness | PerfkitError]:
    """The reference before the change, and how the first steps after it compare; or why there are none."""
    place = scratch / "reference"
    place.mkdir(parents=True)

    def start(name: str, folder: Path, settings: Settings) -> Child:
        program = after if name == after.label else before
        return Child(name, folder / f"{name}.log", folder=program.folder)

    say("checking", "the reference · before")
    reference = run_reference(before.settings, start, say, scratch, place)
    eager = _first_steps(before, REFERENCE, start("eager", scratch, before.settings), place)
    own = eager
    if before.backend != REFERENCE:
        own = _first_steps(before, before.backend, start(before.label, scratch, before.settings), place)
    own_verdict = _judged(before, reference, own, eager)
    if not own_verdict.ok:
        raise RunFailed(
            f"The results are wrong before the change: {' '.join(own_verdict.problems)}", "Correct that first."
        )
    say("checking", "the results · after")
    try:
        found = _first_steps(after, after.backend, start(after.label, scratch, after.settings), place)
    except PerfkitError as error:
        return reference, error
    return reference, _judged(after, reference, found, eager)


def _first_steps(program: SideProgram, backend: str, child: Child, place: Path) -> correctness.FirstSteps:
    with child:
        child.call("prepare", settings=program.settings, backend=backend)
        first = child.call("first_steps", steps=checked_steps(program.settings), reference=str(place))
    found: correctness.FirstSteps = first["found"]
    return found


def _judged(
    program: SideProgram, reference: Reference, found: correctness.FirstSteps, eager: correctness.FirstSteps
) -> Correctness:
    return verdict_of(found, eager, reference, program.settings.dtype)


def _of(verdict: Correctness, reference: Reference) -> Checked:
    """The verdict as that of a try: the check that is nearest to its limit, or farthest beyond."""
    worst = max(
        (check for check in verdict.checks if check.error is not None and check.allowed),
        key=lambda one: (one.error or 0.0) / one.allowed, default=None,
    )  # fmt: skip
    return Checked(
        status=RIGHT if verdict.ok else WRONG,
        how=f"outputs, loss, gradients and updates against eager in {reference.precision} before the change",
        why=" ".join(verdict.problems), error=worst.error if worst else None, allowed=worst.allowed if worst else None,
        count=len(verdict.checks),
    )  # fmt: skip
