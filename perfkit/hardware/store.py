"""Ceilings are measured once and kept: a JSON file a device, fingerprint and number of threads in the user's cache."""

from __future__ import annotations

from pathlib import Path

from perfkit.cache import cache_dir, locked
from perfkit.errors import PerfkitError, UsageError
from perfkit.hardware.ceilings import BUSY, Ceilings, from_json, to_json
from perfkit.hardware.collectives import measure as collectives
from perfkit.hardware.compiler import find_compiler
from perfkit.hardware.identity import fingerprint, usable_threads, version_of
from perfkit.hardware.measure import check_device, measure, used_by_others
from perfkit.hardware.observation import Effort, Progress, method_of
from perfkit.run_folder import write_whole


def load_or_measure(
    device: str = "cpu",
    refresh: bool = False,
    progress: Progress | None = None,
    threads: int | None = None,
    plan: Effort | None = None,
) -> Ceilings:
    """The ceilings of `device`, from the cache if they are there and still hold, else measured and kept.

    `progress` gets a few words before each part of the measurement. Loading needs no torch. A damaged cache file is
    measured again and mentioned in `warnings`. Raises `UsageError` for an unknown device, `Unavailable` where measuring
    is impossible, `RunFailed` when it fails.
    """
    device = check_device(device)
    threads = usable_threads() if threads is None else threads
    path = cache_path(device, threads)
    kept, complaint, reason = _usable(path, refresh)
    if kept is not None:
        return kept
    with locked(path):  # two measurements at the same time would disturb each other
        kept, complaint, reason = _usable(path, refresh)
        if kept is not None:
            return kept
        if reason and progress:
            progress(f"measured again: {reason}")
        before, _ = _load(path)
        ceilings = measure(device, threads, progress, plan)
        ceilings.collectives = before.collectives if before else []  # they hold by themselves
        _keep(path, ceilings)
    if complaint:
        ceilings.warnings.append(complaint)
    return ceilings


def load_or_measure_collectives(
    ranks: int, device: str = "cpu", refresh: bool = False, progress: Progress | None = None
) -> Ceilings:
    """The ceilings of `device` with sweeps of collectives between `ranks` processes, kept or measured as the rest is.

    Raises as `load_or_measure`, and `UsageError` for fewer than two ranks, or one GPU by name.
    """
    if ranks < 2:
        raise UsageError(f"--ranks {ranks}: one process has nothing to exchange.", "Give --ranks 2 or more.")
    if ":" in device:
        raise UsageError(f"--device {device} names one GPU, and every rank has its own.", "Give --device cuda.")
    ceilings = load_or_measure(device, refresh, progress)
    threads = usable_threads()
    path = cache_path(check_device(device), threads)
    with locked(path):
        kept, _ = _load(path)
        found = [s for s in (kept or ceilings).collectives if s.ranks == ranks and collectives.still_holds(s)]
        if refresh or not found:
            found = collectives.measure(device, ranks, threads, progress or (lambda text: None))
            others = [s for s in ceilings.collectives if s.ranks != ranks]
            ceilings.collectives = sorted([*others, *found], key=lambda s: s.ranks)
            _keep(path, ceilings)
    return ceilings


def kept_ceilings(device: str = "cpu") -> Ceilings | None:
    """Return the stored ceilings of `device`, valid or not; None if there are none. Nothing is measured."""
    return _load(cache_path(check_device(device), usable_threads()))[0]


def _usable(path: Path, refresh: bool) -> tuple[Ceilings | None, str, str]:
    """Return the stored ceilings if they are valid; else a complaint about the file, or why they are not."""
    kept, complaint = (None, "") if refresh else _load(path)
    reason = outdated(kept) if kept else ""
    return None if reason else kept, complaint, reason


def cache_path(device: str, threads: int) -> Path:
    """Return the path of the ceilings of `device` with `threads` threads."""
    return cache_dir() / "ceilings" / f"{fingerprint(threads)}-{device.replace(':', '')}-{threads}.json"


def outdated(ceilings: Ceilings) -> str:
    """Why kept ceilings no longer hold, or "": another torch, another way to measure, a compiler that was not there, a
    machine then busy.

    Without torch nothing can be measured again, so what is kept serves.
    """
    torch = version_of("torch")
    if torch is None:
        return ""
    if ceilings.software.get("torch") != torch:
        return f"torch is {torch} now; they were measured with {ceilings.software.get('torch') or 'another'}"
    if ceilings.software.get("method") != method_of(ceilings.device):
        return "more is measured now than when they were"
    if ceilings.device == "cpu" and not ceilings.software.get("compiler") and find_compiler():
        return "there is a C compiler now; they were measured without"
    if ceilings.load is None or ceilings.load <= BUSY:
        return ""
    load = used_by_others(ceilings.device)
    calmer = load is not None and load < ceilings.load / 2
    return "the machine was busy when they were measured, and is calmer now" if calmer else ""


def _load(path: Path) -> tuple[Ceilings | None, str]:
    """Return what is stored, and a complaint if it cannot be used."""
    try:
        return from_json(path.read_bytes()), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, f"the ceilings kept in {path} could not be used ({error}) and were measured again"


def _keep(path: Path, ceilings: Ceilings) -> None:
    """Write the cache file whole or not at all; a cache that cannot be written costs a warning only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, to_json(ceilings))
    except (OSError, PerfkitError) as error:
        reason = error.message if isinstance(error, PerfkitError) else f"{path.parent}: {error.strerror}."
        ceilings.warnings.append(f"the ceilings could not be kept: {reason} Set PERFKIT_CACHE to a folder for them")
