"""Measuring collectives between ranks of this host: torchrun starts `sweep`, and its lines become sweeps."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

import msgspec

from perfkit.errors import RunFailed, Unavailable
from perfkit.hardware.collectives.results import OPERATIONS, CollectiveSweep, SizeTime
from perfkit.hardware.collectives.sweep import SweepRequest
from perfkit.hardware.identity import version_of
from perfkit.hardware.observation import GIB, KIB, MIB, Progress
from perfkit.hardware.subprocesses import import_path, json_lines, torchrun

TIME_LIMIT = 600.0


def requested(device: str) -> SweepRequest:
    """Sizes measured on a GPU (1 KiB to 1 GiB by factors of 2) or a CPU (1 KiB to 64 MiB by factors of 4)."""
    if device == "cpu":
        return SweepRequest(device="cpu", sizes=_sizes(KIB, 64 * MIB, 4), seconds=0.1, rounds=2)
    return SweepRequest(device="cuda", sizes=_sizes(KIB, GIB, 2), seconds=0.01)


def measure(
    device: str, ranks: int, threads: int, progress: Progress, request: SweepRequest | None = None
) -> list[CollectiveSweep]:
    """A sweep of each collective between two or more `ranks`, on GPUs from the first one or on shares of the CPU.

    Raises `Unavailable` without torch or enough GPUs, `RunFailed` when a rank fails or a collective gives wrong
    results.
    """
    if version_of("torch") is None:
        raise Unavailable("Measuring ceilings needs torch.", "Install it: pip install 'perfkit[run]'.")
    request = request or requested(device)
    command = [*torchrun(1, ranks), "-m", "perfkit.hardware.collectives.sweep", msgspec.json.encode(request).decode()]
    environment = {"OMP_NUM_THREADS": str(max(1, threads // ranks)), **import_path()}
    lines = json_lines(command, environment, TIME_LIMIT, f"the sweep between {ranks} ranks")
    return _sweeps(lines, ranks, progress)


def _sweeps(lines: Iterable[Mapping], ranks: int, progress: Progress) -> list[CollectiveSweep]:
    seen: dict[tuple[str, float], list[Mapping]] = {}
    facts: Mapping = {}
    for line in lines:
        if "progress" in line:
            progress(line["progress"])
        elif "unavailable" in line:
            raise Unavailable(line["unavailable"], line["hint"])
        elif "wrong" in line:
            raise RunFailed(f"{line['wrong']} between {ranks} ranks gave wrong results: its speed means nothing.")
        elif "software" in line:
            facts = line
        else:
            seen.setdefault((line["operation"], line["bytes"]), []).append(line)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = [
        CollectiveSweep(
            operation=name,
            ranks=ranks,
            carrier=facts.get("carrier", ""),
            measured_at=now,
            points=[_point(size, rounds) for (operation, size), rounds in sorted(seen.items()) if operation == name],
            software=dict(facts.get("software", {})),
        )
        for name in OPERATIONS
    ]
    if not all(sweep.points for sweep in found):
        raise RunFailed(f"The sweep between {ranks} ranks did not end within {TIME_LIMIT:.0f} s.")
    return found


def _point(size: float, rounds: list[Mapping]) -> SizeTime:
    """The best round, in whose time nobody else took part."""
    times = sorted(rounds, key=lambda line: line["seconds"])
    spread = times[1]["seconds"] / times[0]["seconds"] - 1 if len(times) > 1 else None
    return SizeTime(bytes=size, seconds=times[0]["seconds"], calls=times[0]["calls"], spread=spread)


def _sizes(first: int, last: int, factor: int) -> tuple[int, ...]:
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def still_holds(sweep: CollectiveSweep) -> bool:
    """Return whether a kept sweep was measured with the installed torch, if any: without it nothing is measured."""
    torch = version_of("torch")
    return torch is None or sweep.software.get("torch", "").partition("+")[0] == torch.partition("+")[0]
