"""The ranks of a host: their start, and the work of a host other than the first."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

from perfkit.errors import RunFailed
from perfkit.hardware import subprocesses
from perfkit.hardware.cpu import read_cpu
from perfkit.run.child import search_path
from perfkit.run.ranks.meeting import Meeting
from perfkit.run.ranks.rendezvous import begun
from perfkit.run_folder import Settings

THREADS = "OMP_NUM_THREADS"
RANK = "perfkit.run.ranks.rank"  # the module that torchrun starts
_ENDING_S = 60  # in which ranks end by themselves, once the session has let them go


def torchrun(settings: Settings, options: Sequence[str] = ()) -> list[str]:
    """The command that starts this host's ranks; `options` are those of a `Meeting` of several hosts."""
    return [*subprocesses.torchrun(settings.hosts, settings.ranks // settings.hosts, options), "-m", RANK]


def threads(settings: Settings) -> dict[str, str]:
    """The environment that gives every rank of a host its share of the cores."""
    each = settings.ranks // settings.hosts
    cores = str(max(1, read_cpu().usable // each))
    return {name: os.environ.get(name, cores) for name in (THREADS, "TORCHINDUCTOR_COMPILE_THREADS")}


def serve(settings: Settings, place: Meeting, backends: Sequence[str], unavailable: Sequence[str] = ()) -> None:
    """Run this host's ranks of `backends`, each when it begins, until the session on the first host has ended.

    Raises `RunFailed` where the first host is not found or goes early, and where ranks ended by a failure; the first
    host's report says why.
    """
    variables = {**os.environ, **search_path(), **threads(settings)}
    agents: dict[str, subprocess.Popen[bytes]] = {}
    failed: list[str] = []

    def failures() -> list[int]:
        new = [name for name, agent in agents.items() if agent.poll() and name not in failed]
        failed.extend(new)
        return [backends.index(name) for name in new]

    try:
        for index in begun(place, failures):
            name = backends[index]
            if name in unavailable:
                raise RunFailed(f"{name} is not available on this host.", "Leave it out on every host.")
            agents[name] = subprocess.Popen(torchrun(settings, place.options(index)), env=variables)
        for agent in agents.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(_ENDING_S)
        failures()
    finally:
        for agent in agents.values():
            if agent.poll() is None:
                agent.terminate()
                agent.wait()
    if failed:
        raise RunFailed(
            f"The ranks of {', '.join(failed)} on this host ended by a failure.", "The report of host 0 says why."
        )
