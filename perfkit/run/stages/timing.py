"""Timing the backends of a run in turns, without a profiler."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

from perfkit.hardware.power import Watch
from perfkit.run.backends import Progress, RunningBackend, guarded
from perfkit.run_folder import Settings

ROUNDS = 6  # turns into which the timed steps of a backend are divided; fewer show nothing for several backends
# Before a turn, steps settle until this time has passed, or this number has run. On an H100, steps of 12 ms that wait
# for the host took 17.5 ms as the second and third step after another process's turn.
SETTLE_NS, SETTLE_STEPS = 150e6, 10


def time_in_turns(members: Sequence[RunningBackend], settings: Settings, progress: Progress) -> None:
    """Time the members in turns, forwards and backwards, so that drift of the machine meets all alike."""
    for member in members:
        guarded(member, partial(_warm, member, settings.warmup, progress))
    rounds = min(ROUNDS, settings.steps) if len(members) > 1 else 1
    settle = SETTLE_STEPS if len(members) > 1 else 0  # the turn before left the caches to another process
    with Watch() if settings.device != "cpu" else nullcontext() as watch:
        for index, steps in enumerate(shares(settings.steps, rounds)):
            for member in members if index % 2 == 0 else list(reversed(members)):
                if member.alive:
                    progress(member.name, f"timing · round {index + 1} of {rounds}")
                    guarded(member, partial(_time_one, member, steps, settle, bool(settings.generate)))
                    guarded(member, partial(_add_power, member, watch))


def _warm(member: RunningBackend, steps: int, progress: Progress) -> None:
    assert member.child is not None
    member.child.call("reset_peak_memory")
    progress(member.name, "warming up")
    member.record.warmup_ns = member.child.call("settle", steps=steps)


def _time_one(member: RunningBackend, steps: int, settle: int, generates: bool) -> None:
    assert member.child is not None
    samples = member.child.call("time", steps=steps, settle=settle, settle_ns=SETTLE_NS)
    member.record.samples_ns += samples
    member.record.turns.append(len(samples))
    if generates:
        member.record.tokens_ns = member.child.call("tokens_ns")
    member.record.peak_memory_bytes, member.record.memory_how = member.child.call("peak_memory")
    member.record.fresh_bytes, member.record.system_ns = member.child.call("paging")


def _add_power(member: RunningBackend, watch: Watch | None) -> None:
    if watch is not None and member.child is not None:
        member.record.power = watch.during(*member.child.call("spans"))


def shares(total: int, parts: int) -> list[int]:
    """`total` divided into `parts` as evenly as whole numbers allow, larger shares first."""
    return [total // parts + (1 if i < total % parts else 0) for i in range(parts)]
