"""The reference of a run: eager in a higher precision, and how each backend is judged by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit import correctness
from perfkit.errors import OutOfMemory, RunFailed
from perfkit.run.child import Child
from perfkit.run.members import Member, Progress
from perfkit.run.ranks.group import Group
from perfkit.run_folder import Settings, WorkloadFacts

REFERENCE = "eager"
FROM_EARLIER = (
    "The fp64 reference is an earlier run's of the same model, seed, settings and code; the first step's outputs and "
    "loss were computed again."
)

Start = Callable[[str, Path, Settings], Child | Group]  # a process: what it is called, the folder of its log


@dataclass(frozen=True)
class Reference:
    """The reference of the others: the precision it ran in, and the losses of its first steps."""

    facts: WorkloadFacts
    precision: str
    losses: list[float]
    # The error of eager in one process, for several ranks: they cannot be judged by their own error.
    standard: correctness.Found | None = None
    share: float = 1.0  # of the GPU's memory, that it took at its peak


def checked_steps(settings: Settings) -> int:
    """Return the number of first steps that are compared with the reference's."""
    return correctness.CHECKED_STEPS if settings.training else 1


def run_reference(
    given: Settings,
    start: Start,
    progress: Progress,
    folder: Path,
    scratch: Path,
    highest: str = "fp64",
    known: bool = True,
    keep: bool = True,
) -> Reference:
    """Run the reference, which leaves its outputs and gradients in `scratch`: in `highest`, or else in fp32.

    With `known` an earlier run's is taken where it is the same (`kept_reference`), with `keep` others may take this
    one. Raises `OutOfMemory` where fp32 finds no room either, `RunFailed` where a loss is not finite.
    """
    settings, precision = given.alone(), highest
    prepared = {"settings": settings, "backend": REFERENCE, "reference": True, "highest": highest}
    try:
        with start("reference", folder, settings) as child:
            facts, precision = child.call("prepare", **prepared)
            told = _computed(child, checked_steps(given), scratch, known, keep)
    except OutOfMemory:
        if precision == "fp32":
            raise
        progress("reference", "too large in fp64: again in fp32")
        return run_reference(given, start, progress, folder, scratch, "fp32")
    if told.get("stale"):
        progress("reference", "not what an earlier run kept: again")
        return run_reference(given, start, progress, folder, scratch, highest, known=False, keep=keep)
    facts.notes += [f"The trained reference {told['demonstration']}."] if told["demonstration"] else []
    facts.notes += [FROM_EARLIER] if told.get("known") else []
    losses = told["losses"]
    if not all(math.isfinite(v) for v in losses):
        raise RunFailed("The reference's loss is not finite.", "Check the workload, its data and its weights.")
    standard = _in_one_process(given, start, folder, scratch) if given.in_group else None
    return Reference(facts, precision, losses, standard, told["share"])


def _computed(child: Child | Group, steps: int, scratch: Path, known: bool, keep: bool) -> dict[str, Any]:
    """Return the facts about the reference that is in `scratch` afterwards, an earlier run's where it is the same."""
    key = child.call("reference_key", steps=steps) if keep else ""
    found: dict[str, Any] | None = None
    if key and known:
        found = child.call("kept_reference", key=key, reference=str(scratch))
    if found is not None:
        return {**found, "known": True}
    first = child.call("first_steps", steps=steps, reference=str(scratch), write=True)
    told = {"losses": first["found"].losses, "share": child.call("memory_share")}
    told["demonstration"] = child.call("demonstrate")
    if key and all(map(math.isfinite, told["losses"])):
        child.call("keep_reference", key=key, reference=str(scratch), told=told)
    return told


def _in_one_process(given: Settings, start: Start, folder: Path, scratch: Path) -> correctness.Found:
    """Return eager's results in one process, in the precision of the run: their error is the limit of several ranks."""
    settings = given.alone()
    with start("one process", folder, settings) as child:
        child.call("prepare", settings=settings, backend=REFERENCE)
        first = child.call("first_steps", steps=checked_steps(given), reference=str(scratch))
    found: correctness.Found = first["found"]
    return found


def judge(member: Member, eager: Member, reference: Reference, dtype: str) -> None:
    """Hold the member's first steps against the reference, and keep the verdict in its record.

    Raises `RunFailed` where eager, by whose error the others are judged, did not come so far.
    """
    if not member.alive:
        if member is eager and reference.standard is None:
            raise RunFailed(f"eager, the reference, failed: {member.record.reason}")
        return
    verdict = correctness.judge(
        dtype,
        reference.precision,
        member.first["found"],
        reference.standard or eager.first["found"],
        reference.losses,
        reference.facts.samples_per_step or 1,
    )
    member.record.correctness = verdict
    if not verdict.ok:
        member.record.status = "wrong"
        member.record.reason = " ".join(verdict.problems)
