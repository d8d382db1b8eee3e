"""The reference of a run: eager in a higher precision, and how each backend is judged by it."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfkit import correctness
from perfkit.errors import OutOfMemory, RunFailed
from perfkit.run.backends import Progress, RunningBackend
from perfkit.run.child import Child
from perfkit.run.ranks.group import RankProcesses
from perfkit.run_folder import Correctness, Settings, WorkloadFacts

REFERENCE = "eager"
# fp64 computes the first step alone where eager's own losses of the later ones decide as well: they are 10⁻⁷ off
# fp64's, and `correctness.LOSS_FLOOR` allows 10⁻⁴.
BY_EAGER = ("fp32",)

Start = Callable[[str, Path, Settings], Child | RankProcesses]  # a process: what it is called, the folder of its log


@dataclass
class Reference:
    """The reference of the others: the precision it ran in, and the losses of its first steps.

    `further` computes the losses of all checked steps where `losses` holds the first one alone, or returns none.
    """

    facts: WorkloadFacts
    precision: str
    losses: list[float]
    further: Callable[[], list[float]]
    # The error of eager in one process, for several ranks: they cannot be judged by their own error.
    standard: correctness.FirstSteps | None = None
    share: float = 1.0  # of the GPU's memory, that it took at its peak


def checked_steps(settings: Settings) -> int:
    """Return the number of first steps that are compared with the reference's."""
    return correctness.CHECKED_STEPS if settings.training else 1


def run_reference(
    given: Settings, start: Start, progress: Progress, folder: Path, scratch: Path, highest: str = "fp64"
) -> Reference:
    """Run the reference, which leaves its outputs and gradients in `scratch`: in `highest`, or else in fp32.

    Raises `OutOfMemory` where fp32 finds no room either, `RunFailed` where a loss is not finite.
    """
    every = checked_steps(given)
    steps = 1 if given.dtype in BY_EAGER else every
    try:
        facts, precision, losses, share = _losses(given, start, folder, scratch, highest, steps)
    except OutOfMemory:
        if highest == "fp32":
            raise
        progress("reference", "too large in fp64: again in fp32")
        return run_reference(given, start, progress, folder, scratch, "fp32")
    if not all(math.isfinite(v) for v in losses):
        raise RunFailed("The reference's loss is not finite.", "Check the workload, its data and its weights.")

    def further() -> list[float]:
        if steps == every:
            return []
        progress("reference", "a later loss differs: all steps in fp64")
        with tempfile.TemporaryDirectory(dir=scratch) as own, contextlib.suppress(OutOfMemory):
            return _losses(given, start, folder, Path(own), highest, every)[2]
        return []

    reference = Reference(facts, precision, losses, further, share=share)
    if given.in_group:
        reference.standard = _in_one_process(given, start, folder, scratch, facts)
    return reference


def _losses(
    given: Settings, start: Start, folder: Path, scratch: Path, highest: str, steps: int
) -> tuple[WorkloadFacts, str, list[float], float]:
    """Return facts about the workload, the precision, the losses, and the share of the memory that they took."""
    settings = given.alone()
    prepared = {"settings": settings, "backend": REFERENCE, "reference": True, "highest": highest}
    with start("reference", folder, settings) as child:
        facts, precision = child.call("prepare", **prepared)
        first = child.call("first_steps", steps=steps, reference=str(scratch), write=True)
        return facts, precision, first["found"].losses, child.call("memory_share")


def _in_one_process(
    given: Settings, start: Start, folder: Path, scratch: Path, facts: WorkloadFacts
) -> correctness.FirstSteps:
    """Return eager's results in one process, in the precision of the run: their error is the limit of several ranks."""
    settings = given.alone()
    with start("one process", folder, settings) as child:
        child.call("prepare", settings=settings, backend=REFERENCE)
        first = child.call("first_steps", steps=checked_steps(given), reference=str(scratch))
        demonstrate(child, facts)
    found: correctness.FirstSteps = first["found"]
    return found


def demonstrate(child: Child | RankProcesses, facts: WorkloadFacts) -> None:
    """Note what the model of `child`, which took its first steps, can do."""
    shown = child.call("demonstrate")
    facts.notes += [f"The trained model {shown}."] if shown else []


def judge(member: RunningBackend, eager: RunningBackend, reference: Reference, dtype: str) -> None:
    """Hold the member's first steps against the reference, and keep the verdict in its record.

    Raises `RunFailed` where eager, by whose error the others are judged, did not come so far.
    """
    if not member.alive:
        if member is eager and reference.standard is None:
            raise RunFailed(f"eager, the reference, failed: {member.record.reason}")
        return
    verdict = verdict_of(member.first["found"], reference.standard or eager.first["found"], reference, dtype)
    member.record.correctness = verdict
    if not verdict.ok:
        member.record.status = "wrong"
        member.record.reason = " ".join(verdict.problems)


def verdict_of(
    found: correctness.FirstSteps, eager: correctness.FirstSteps, reference: Reference, dtype: str
) -> Correctness:
    """Return the verdict on what a backend found; where eager's later losses do not decide, by fp64's."""

    def judged() -> Correctness:
        samples = reference.facts.samples_per_step or 1
        return correctness.judge(dtype, reference.precision, found, eager, reference.losses, samples)

    verdict = judged()
    if correctness.losses_differ(verdict) and (losses := reference.further()):
        reference.losses, reference.further = losses, list
        verdict = judged()
    return verdict
