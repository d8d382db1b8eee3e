"""Record of a measured comparison: every turn of every launch, in order, and the paths of its profiles.

    COMPARISON/
      compare.json                     the record (`Measurement`), written last and whole
      run/ or WORKLOAD/                a run folder: correctness, one timing and one profile of each side
      launches/NNN/SIDE/kernels.parquet   the kernel table of the profiled steps of one side in one launch

A launch is one fresh process for each side. Nothing here needs torch.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from perfkit.run_folder import read_record, write_record

SCHEMA_VERSION = 1
MEASUREMENT = "compare.json"
LAUNCHES = "launches"


class Turn(msgspec.Struct, frozen=True):
    """Steps of one side timed in a row, ns each: which side, and in which round of its launch."""

    side: int
    round: int
    samples_ns: list[float]


class RecordedLaunch(msgspec.Struct, kw_only=True):
    """One fresh process for each side. `tables` are the sides' kernel tables, paths below the folder ("" for none)."""

    turns: list[Turn]  # in the order in which they were measured
    warmup_ns: list[list[float]]  # by side
    steady_from: list[int | None]  # by side: the first steady step of the warm-up, None without one
    peak_memory_bytes: list[float | None]
    tables: list[str]
    unusable: str = ""  # why the sides have no table although they were profiled


class MeasuredSide(msgspec.Struct, frozen=True, kw_only=True):
    """One of the things compared: its label, its run folder below the comparison's ("" for none), and its backend."""

    label: str
    run: str
    backend: str


class Measurement(msgspec.Struct, kw_only=True):
    """The record of a measured comparison."""

    schema: int = SCHEMA_VERSION
    perfkit: str
    created: str
    command: list[str]
    sides: list[MeasuredSide]
    launches: list[RecordedLaunch]
    stopped: str = ""  # why there are as many launches as there are
    share: float = 1.0  # of the error, that verdicts at this number of launches may spend


def write_measurement(folder: Path, measurement: Measurement) -> None:
    """Write the record through a temporary name."""
    write_record(folder / MEASUREMENT, measurement)


def is_measurement(path: Path) -> bool:
    """Return whether `path` is the folder of a measured comparison."""
    return (path / MEASUREMENT).is_file()


def read_measurement(folder: Path) -> Measurement:
    """Read and check a record. Raises `InputError` when it is damaged or of a newer version."""
    return read_record(folder / MEASUREMENT, Measurement, SCHEMA_VERSION, "Measure again.")
