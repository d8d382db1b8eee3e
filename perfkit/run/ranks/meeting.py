"""The meeting point of several hosts, by torchrun's own options."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.errors import UsageError
from perfkit.run_folder import Settings

_JOIN_S = 600  # for torchrun on the other hosts, once host 0 has asked them to start it


@dataclass(frozen=True)
class Meeting:
    """The meeting point: HOST:PORT of the first host. `number` is this host's, 0 of the first."""

    host: str
    port: int
    number: int = 0

    def options(self, index: int) -> tuple[str, ...]:
        """torchrun's options for the backend number `index`: each has a port of its own, after the run's own.

        Static, because ranks then follow the numbers of hosts: rank 0 is on the host of the session and its files.
        """
        return (
            "--rdzv-backend", "static", "--rdzv-endpoint", f"{self.host}:{self.port + 1 + index}",
            "--node-rank", str(self.number), "--rdzv-id", f"perfkit-{index}", "--rdzv-conf", f"timeout={_JOIN_S}",
        )  # fmt: skip


def meeting_of(settings: Settings, number: int, endpoint: str) -> Meeting | None:
    """Return the meeting point of `settings`; None for one host. Raises `UsageError` for options that do not go
    together."""
    if settings.hosts == 1:
        if number or endpoint:
            raise UsageError("--node-rank and --rdzv-endpoint are for several hosts.", "Give --nnodes 2.")
        return None
    if not 0 <= number < settings.hosts:
        raise UsageError(f"--node-rank {number} is not one of {settings.hosts} hosts.", "Count them from 0.")
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise UsageError(
            f"{settings.hosts} hosts meet at --rdzv-endpoint HOST:PORT, and {endpoint!r} is not of this form.",
            "Name host 0 and a free port of it, on every host alike.",
        )
    return Meeting(host, int(port), number)
