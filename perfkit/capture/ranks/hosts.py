"""Ranks on several hosts: where they meet, by torchrun's own options, and what a host beside the first one does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from perfkit.capture.child import search_path
from perfkit.errors import RunFailed, UsageError
from perfkit.hardware import subprocesses
from perfkit.hardware.cpu import read_cpu
from perfkit.run_folder import Settings

THREADS = "OMP_NUM_THREADS"
RANK = "perfkit.capture.ranks.rank"  # the module that torchrun starts
_WAIT_S = 3600  # for the other hosts: before a backend's turn come the reference and the backends before it


@dataclass(frozen=True)
class Meeting:
    """Where the hosts meet: HOST:PORT of the first of them. `number` is this host's, 0 of the first."""

    host: str
    port: int
    number: int = 0

    def options(self, index: int) -> tuple[str, ...]:
        """torchrun's options for the backend number `index`: each has a port of its own, from the endpoint's on.

        Static, because ranks then follow the numbers of hosts: rank 0 is beside the session and its files.
        """
        return (
            "--rdzv-backend", "static", "--rdzv-endpoint", f"{self.host}:{self.port + index}",
            "--node-rank", str(self.number), "--rdzv-id", f"perfkit-{index}", "--rdzv-conf", f"timeout={_WAIT_S}",
        )  # fmt: skip


def meeting(settings: Settings, number: int, endpoint: str) -> Meeting | None:
    """Where the hosts of `settings` meet; None for one host. Raises `UsageError` for what does not go together."""
    if settings.hosts == 1:
        if number or endpoint:
            raise UsageError("--node-rank and --rdzv-endpoint are for several hosts.", "Give --nnodes 2.")
        return None
    if not 0 <= number < settings.hosts:
        raise UsageError(f"--node-rank {number} is none of {settings.hosts} hosts.", "Count them from 0.")
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise UsageError(
            f"{settings.hosts} hosts meet at --rdzv-endpoint HOST:PORT, and {endpoint!r} is none.",
            "Name host 0 and a free port of it, on every host alike.",
        )
    return Meeting(host, int(port), number)


def torchrun(settings: Settings, options: Sequence[str] = ()) -> list[str]:
    """The command that starts this host's ranks; `options` are those of a `Meeting` of several hosts."""
    return [*subprocesses.torchrun(settings.hosts, settings.ranks // settings.hosts, options), "-m", RANK]


def threads(settings: Settings) -> dict[str, str]:
    """The environment that gives every rank of a host its share of the cores."""
    each = settings.ranks // settings.hosts
    cores = str(max(1, read_cpu().usable // each))
    return {name: os.environ.get(name, cores) for name in (THREADS, "TORCHINDUCTOR_COMPILE_THREADS")}


def serve(settings: Settings, place: Meeting, backends: Sequence[str], unavailable: Sequence[str] = ()) -> None:
    """Run this host's ranks of `backends` until the session on the first host is done with them.

    Raises `RunFailed` where some ended by a failure; the first host's report says why.
    """
    variables = {**os.environ, **search_path(), **threads(settings)}
    agents = {
        name: subprocess.Popen(torchrun(settings, place.options(i)), env=variables)
        for i, name in enumerate(backends)
        if name not in unavailable
    }
    try:
        failed = [name for name, agent in agents.items() if agent.wait()]
    finally:
        for agent in agents.values():
            if agent.poll() is None:
                agent.terminate()
                agent.wait()
    if failed:
        raise RunFailed(
            f"The ranks of {', '.join(failed)} on this host ended by a failure.", "The report of host 0 says why."
        )
