"""A run folder of one process, as what the ranks of a larger job do: segments of work, parameters, memory."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfkit.errors import InputError
from perfkit.hardware.ceilings import Ceilings, from_json
from perfkit.profile_names import BACKWARD, FORWARD, OPTIMIZER, ZERO_GRAD
from perfkit.run_folder import CEILINGS, KERNELS, BackendRun, Manifest, read_manifest
from perfkit.scale.parameters import Parameter, parameters_of
from perfkit.table import KernelTable

ROOT = -1  # the unit of everything outside repeated blocks
_FIRST_NUMBER = re.compile(r"\.(\d+)(?:\.|$)")


@dataclass(frozen=True)
class StepRow:
    """One kernel or operator of the step, in ns from its start. `gap` is the idle time before it."""

    phase: str
    unit: int
    module: str
    ns: float
    gap: float


@dataclass(frozen=True)
class OneRank:
    """One rank's step. `rows` add up to `step_ns`, the median step without a profiler. `host_ns` is what its host
    takes to launch a step on a GPU, None where that is not known. `bandwidth` is that of main memory, bytes/s. `way` is
    how a group of one shared the work, "" where the process was alone: the rows of a group have its copies and hooks.
    """

    manifest: Manifest
    backend: BackendRun
    ceilings: Ceilings
    rows: list[StepRow]
    parameters: list[Parameter]
    step_ns: float
    host_ns: float | None

    @property
    def way(self) -> str:
        """How the one rank shared the work; "" alone."""
        return self.manifest.settings.parallel

    @property
    def gathered(self) -> bool:
        """Return whether a group of one by fsdp gathered its parameters, as before torch 2.9, or took them as they
        are."""
        torch = self.manifest.environment.get("versions", {}).get("torch", "")
        version = [int(part) for part in re.findall(r"\d+", torch)[:2]]
        return bool(version) and version < [2, 9]

    @property
    def on_gpu(self) -> bool:
        """Return whether the run was on a GPU."""
        return self.manifest.settings.device != "cpu"

    @property
    def bandwidth(self) -> float:
        """Measured bandwidth of main memory, bytes/s."""
        return self.ceilings.dram_bandwidth

    @property
    def parameter_bytes(self) -> float:
        """Bytes of all parameters."""
        return float(sum(p.bytes for p in self.parameters))

    @property
    def gradient_bytes(self) -> float:
        """Bytes of the gradients of all trained parameters."""
        return float(sum(p.bytes for p in self.parameters if p.trained))


def read_one_rank(folder: Path, backend: str = "") -> OneRank:
    """The step of `backend`, or of the first one that ran, in a run folder.

    Raises `InputError` for a folder that does not contain it.
    """
    manifest = read_manifest(folder)
    if manifest.settings.ranks > 1:
        raise InputError(
            f"{folder} is a run of {manifest.settings.ranks} ranks.",
            "Give a run of one: --ranks 1, with or without --parallel.",
        )
    if not manifest.settings.training:
        raise InputError(f"{folder} is a run of inference, whose ranks exchange nothing.", "Give a run of training.")
    chosen = _chosen(folder, manifest, backend)
    table = KernelTable.load(folder / chosen.name / KERNELS)
    step_ns = statistics.median(chosen.samples_ns)
    parameters = parameters_of(manifest)
    return OneRank(
        manifest=manifest,
        backend=chosen,
        ceilings=_ceilings(folder),
        rows=_rows(table, step_ns, folder),
        parameters=parameters,
        step_ns=step_ns,
        host_ns=_host_ns(table, step_ns),
    )


def _chosen(folder: Path, manifest: Manifest, name: str) -> BackendRun:
    timed = [b for b in manifest.backends if b.samples_ns and (folder / b.name / KERNELS).is_file()]
    if name and name not in {b.name for b in timed}:
        known = ", ".join(b.name for b in timed) or "none"
        raise InputError(f"{folder} has no timed step and kernel table of {name}.", f"It has: {known}.")
    if not timed:
        raise InputError(f"{folder} holds no timed backend with a kernel table.", "Run it with --profiler torch.")
    return next((b for b in timed if b.name == name), timed[0])


def _ceilings(folder: Path) -> Ceilings:
    try:
        return from_json((folder / CEILINGS).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}/{CEILINGS} cannot be read: {error}.", "Run the workload again.") from error


def _rows(table: KernelTable, step_ns: float, folder: Path) -> list[StepRow]:
    """The last recorded step in the order of time; idle time is stretched, or work shrunk, to `step_ns` in all.

    Collectives of a group of one, which send nothing, are left out of it.
    """
    frame = table.frame[table.frame["step"].notna()]
    frame = frame[(frame["step"] == frame["step"].max()) & (frame["kind"] != "graph")].sort_values("start_ns")
    if frame.empty:
        raise InputError(f"{folder} has no kernels of a step.", "Run it again, with --profiler torch.")
    start = frame["start_ns"].to_numpy(float)
    length = np.nan_to_num(frame["duration_ns"].to_numpy(float))
    begins = np.maximum.accumulate(np.concatenate([[start[0]], (start + length)[:-1]]))
    gaps = np.maximum(start - begins, 0.0)
    idle = step_ns - length.sum()
    if idle < 0:
        length, gaps = length * step_ns / length.sum(), np.zeros(len(gaps))
    else:
        gaps = gaps * idle / gaps.sum() if gaps.sum() else np.full(len(gaps), idle / len(gaps))
    phases = [_phase(value) for value in frame["pass"].astype(object).where(frame["pass"].notna(), "")]
    layers = frame["layer"].fillna(ROOT).astype(int).tolist()
    modules = frame["module"].astype(object).where(frame["module"].notna(), "").tolist()
    own = frame["collective"].isna().tolist()
    rows = zip(_filled(phases), layers, modules, length.tolist(), gaps.tolist(), strict=True)
    return [StepRow(*values) for values, computes in zip(rows, own, strict=True) if computes]


def _phase(name: str) -> str:
    return {BACKWARD: BACKWARD, OPTIMIZER: OPTIMIZER, ZERO_GRAD: OPTIMIZER, "": ""}.get(name, FORWARD)


def _filled(phases: Sequence[str]) -> list[str]:
    """Rows without a pass belong to the one before, those at the beginning to the forward pass."""
    filled, last = [], FORWARD
    for phase in phases:
        last = phase or last
        filled.append(last)
    return filled


def _host_ns(table: KernelTable, step_ns: float) -> float | None:
    """How long the host takes to launch a step: what the profiler costs it is taken off, and it is not longer than a
    step without one. Where it waits for the GPU in the middle of a step, the wait is in it.
    """
    facts: Mapping = table.facts
    launched = [one["launched_ns"] for one in facts.get("per_step") or [] if one.get("launched_ns")]
    if not launched:
        return None
    seen = facts.get("profiler_estimate") or {}
    cost = seen.get("event_cost_ns", 0.0) * seen.get("events", 0) / len(launched)
    return min(max(statistics.median(launched) - cost, 0.0), step_ns)


def unit_of(name: str, rows: Sequence[StepRow]) -> int:
    """The repeated block that a parameter belongs to, by where the rows of its module lie, else by its first number."""
    known = {row.module: row.unit for row in rows if row.module}
    path = name.rpartition(".")[0]
    while path:
        if path in known:
            return known[path]
        path = path.rpartition(".")[0]
    number = _FIRST_NUMBER.search(name)
    layers = {row.unit for row in rows} - {ROOT}
    return int(number[1]) if number and int(number[1]) in layers else ROOT
