"""Run folders: everything a report needs, read in one go.

A damaged manifest is an error, for nothing can be said without it. A damaged or missing part of one backend is a
warning at that backend: the rest of the run still makes a report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perfkit.errors import InputError
from perfkit.run_folder import CEILINGS, KERNELS, BackendRun, Manifest, read_manifest
from perfkit.table import KernelTable


@dataclass
class Run:
    """A run folder in memory.

    `tables` holds the kernel table of each backend that has one, by name in the manifest's order; `ceilings` the
    content of ceilings.json as plain data, None without any; `problems` sentences by backend name ("" for the run).
    """

    folder: Path
    manifest: Manifest
    tables: dict[str, KernelTable] = field(default_factory=dict)
    ceilings: dict[str, Any] | None = None
    problems: dict[str, list[str]] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict, repr=False)  # of each trace, once it was read

    def __repr__(self) -> str:
        backends = ", ".join(f"{b.name} ({b.status})" for b in self.manifest.backends)
        return f"Run({str(self.folder)!r}: {self.manifest.workload.title}; {backends})"

    def _warn(self, name: str, sentence: str) -> None:
        self.problems.setdefault(name, []).append(sentence)


def read_run(folder: Path) -> Run:
    """Read a run folder. Raises `InputError` when it is not one, or its manifest is damaged or of a newer version."""
    folder = Path(folder)
    run = Run(folder, read_manifest(folder))
    run.ceilings = _read_ceilings(folder, run)
    for backend in run.manifest.backends:
        _read_backend(folder, backend, run)
    return run


def _read_ceilings(folder: Path, run: Run) -> dict[str, Any] | None:
    path = folder / CEILINGS
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        run._warn("", f"the run has no {CEILINGS}: efficiency and headroom are unknown")
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        run._warn("", f"{CEILINGS} is damaged: efficiency and headroom are unknown")
    return None


def _read_backend(folder: Path, backend: BackendRun, run: Run) -> None:
    path = folder / backend.name / KERNELS
    if not path.exists():
        profiled = run.manifest.settings.profiler != "none" and backend.timed and not backend.unusable
        if backend.status in ("ok", "wrong") and profiled:
            run._warn(backend.name, f"{backend.name}/{KERNELS} is missing: no kernels are shown")
        return
    try:
        run.tables[backend.name] = KernelTable.load(path)
    except InputError as error:
        run._warn(backend.name, f"{backend.name}/{KERNELS} is damaged: no kernels are shown ({error.message})")
