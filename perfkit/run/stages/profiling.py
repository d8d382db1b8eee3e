"""The last thing that a backend of a run does: its profile, and what its program says of itself."""

from __future__ import annotations

from functools import partial

from perfkit.run.backends import RunningBackend, guarded
from perfkit.run_folder import Settings

PROFILED_STEPS = 2


def finish(member: RunningBackend, settings: Settings) -> None:
    """Profile a member that runs, and keep what its program says of itself."""
    if member.alive and member.record.timed:
        guarded(member, partial(_finish, member, settings))


def _finish(member: RunningBackend, settings: Settings) -> None:
    assert member.child is not None
    if settings.profiler != "none":
        steps = min(PROFILED_STEPS, settings.steps)
        found = member.child.call("profile", folder=str(member.folder), steps=steps)
        member.record.trace, member.record.profiled_ns = found["trace"], found["profiled_ns"]
        member.record.beside_ns = found["beside_ns"]
        member.record.unusable, member.record.trace_checks = found["unusable"], found["trace_checks"]
    described = member.child.call("describe", folder=str(member.folder))
    member.record.symbols, member.record.generated = described["symbols"], described["generated"]
    member.record.warnings += described["warnings"]
    member.record.compiler, member.record.replays = described["compiler"], described["replays"]
    member.record.ranks = member.child.ranks
