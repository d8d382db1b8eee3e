"""Theoretical peaks: what a device could do on paper, from its attributes, with a table to label and to fill in.

For a GPU: peak = multiprocessors × FLOP a multiprocessor does in a cycle × clock; DRAM = 2 × bus width × memory clock.
The rates and the datasheet rows are data (`peaks.toml`). Peaks that neither attributes nor table give are left out.
Where a device is only named, its row makes the ceilings (`ceilings_on_paper`).
For a CPU nothing says how many arithmetic units a core has, so there is only an upper bound (`cpu_bounds`).
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfkit.hardware.ceilings import MEMORY, Ceiling, Ceilings
from perfkit.hardware.cpu import Cpu
from perfkit.hardware.gpu import Gpu

TABLE = Path(__file__).with_name("peaks.toml")

# Variants with other clocks or fewer units than the board that shares their name, except for rows that name them.
_OTHER_BOARDS = frozenset({"mig", "laptop", "max", "ti", "super", "d", "nvl", "dgx", "vgpu", "grid"})


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """FLOP per multiprocessor and cycle by resource, for some compute capabilities."""

    compute_capability: tuple[str, ...]
    source: str
    geforce: bool = False
    flop: dict[str, float] = {}


class DatasheetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A board: how to recognise its device string, and what the vendor says it does."""

    name: str
    all: tuple[str, ...]
    any: tuple[str, ...] = ()
    compute_capability: str = ""  # "" of a board that is not NVIDIA's
    multiprocessors: int  # as the driver counts them: of an AMD board with two devices, those of one
    clock_mhz: float
    tensor_clock_mhz: float | None = None
    dram_gb_s: float
    cache_mib: float  # of the last level
    rates: dict[str, float] = {}  # FLOP a multiprocessor and cycle where they are not those of its compute capability
    link_gb_s: float | None = None
    tflops: dict[str, float]
    source: str


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """Peaks in base units: "memory" in bytes/s and resources (`perfkit.table.RESOURCES`) in FLOP/s; unknown is absent.

    `how` says for each where the figure comes from; `label` is the board's name in the table, "" when it is not in it.
    """

    values: dict[str, float] = {}
    how: dict[str, str] = {}
    label: str = ""


def peaks_of(gpu: Gpu) -> Peaks:
    """Peaks of a GPU: from its attributes where they are known, from the table where not."""
    row, rate = find_row(gpu.name), _rate_of(gpu)
    values: dict[str, float] = {}
    how: dict[str, str] = {}
    if row:
        source = f"datasheet of {row.name}: {row.source}"
        values = {"memory": row.dram_gb_s * 1e9, **{name: tera * 1e12 for name, tera in row.tflops.items()}}
        how = dict.fromkeys(values, source)
    if rate and gpu.multiprocessors and gpu.max_clock_hz:
        for resource, flop in {**rate.flop, **(row.rates if row else {})}.items():
            clock = _clock(gpu.max_clock_hz, row, resource)
            values[resource] = gpu.multiprocessors * flop * clock
            how[resource] = f"{gpu.multiprocessors} multiprocessors × {flop:g} FLOP a cycle × {clock / 1e6:.0f} MHz"
    if gpu.memory_bus_bits and gpu.memory_clock_hz:
        values["memory"] = 2 * gpu.memory_bus_bits / 8 * gpu.memory_clock_hz
        how["memory"] = f"2 × {gpu.memory_bus_bits} bit × {gpu.memory_clock_hz / 1e6:.0f} MHz"
    return Peaks(values=values, how=how, label=row.name if row else "")


def find_row(device_name: str, multiprocessors: int | None = None) -> DatasheetRow | None:
    """The table's row for a device string such as "NVIDIA H100 80GB HBM3"; None for a board that is not in it.

    Words are compared, not the whole string: vendor and series words do not matter, but a word that names another
    variant (Ti, Laptop, NVL, a MIG slice, …) rules a row out that does not name it. So do other `multiprocessors`.
    """
    words = set(re.findall(r"[a-z0-9]+", device_name.lower()))
    fits = [
        row
        for row in _table()[1]
        if words.issuperset(row.all)
        and (not row.any or words & set(row.any))
        and words & _OTHER_BOARDS <= {*row.all, *row.any}
        and multiprocessors in (None, row.multiprocessors)
    ]
    closest = [row for row in fits if len(row.all) == max(len(r.all) for r in fits)]
    return closest[0] if len(closest) == 1 else None


def ceilings_on_paper(gpus: Iterable[Mapping[str, Any]]) -> Ceilings | None:
    """Ceilings by the datasheet of GPUs as profiles describe them; None unless they are all one board of the table.

    A product of a precision that no matrix unit takes runs on the vector units.
    """
    found = [find_row(str(gpu.get("name") or ""), _multiprocessors(gpu)) for gpu in gpus]
    row = found[0] if found else None
    if row is None or any(other != row for other in found):
        return None
    rates = {name: tera * 1e12 for name, tera in row.tflops.items()}
    for dtype in ("fp32", "fp64"):
        if f"vector_{dtype}" in rates:
            rates.setdefault(f"matrix_{dtype}", rates[f"vector_{dtype}"])
    cache, memory = row.cache_mib * 2**20, row.dram_gb_s * 1e9
    return Ceilings(
        fingerprint="",
        device="cuda",
        device_name=row.name,
        measured_at="",
        threads=0,
        bandwidth=[(2 * cache, memory)],
        caches={"L2": cache},
        compute=rates,
        details=[Ceiling(name="memory (datasheet)", resource=MEMORY, unit="B/s", value=memory, how=row.source)],
        datasheet={MEMORY: memory, **rates},
        datasheet_source=f"datasheet of {row.name}: {row.source}",
        on_paper=True,
    )


def _multiprocessors(gpu: Mapping[str, Any]) -> int | None:
    """As torch, Nsight Systems and perfkit call their number."""
    return next((int(gpu[key]) for key in ("numSms", "smCount", "multiprocessors") if gpu.get(key)), None)


def cpu_bounds(cpu: Cpu, cores: int) -> Peaks:
    """Upper bounds for `cores` cores of an x86 CPU, where its maximum clock is known; else nothing.

    No x86 core to date starts more than two full-width multiply-adds a cycle, so lanes × 2 × 2 × clock × cores cannot
    be exceeded outside its matrix unit (AMX). Many cores do less: this bounds a measurement, it is not a roof.
    """
    if cpu.architecture not in ("x86_64", "AMD64") or not cpu.max_frequency_hz or "fma" not in cpu.simd:
        return Peaks()
    bits = 512 if "avx512f" in cpu.simd else 256
    how = (
        f"{cores} cores × 2 multiply-adds of {bits} bit a cycle × {cpu.max_frequency_hz / 1e6:.0f} MHz: an upper bound"
    )
    values = {
        f"{unit}_{name}": cores * 2 * 2 * (bits / size) * cpu.max_frequency_hz
        for unit in ("vector", "matrix")
        for name, size in (("fp32", 32), ("fp64", 64))
    }
    return Peaks(values=values, how=dict.fromkeys(values, how))


def _clock(maximum: float, row: DatasheetRow | None, resource: str) -> float:
    """The clock to rate `resource` at: vendors rate Hopper's tensor units (not fp64) below the maximum clock."""
    tensor = row.tensor_clock_mhz if row else None
    if tensor is None or not resource.startswith("matrix_") or resource == "matrix_fp64":
        return maximum
    return min(maximum, tensor * 1e6)


def _rate_of(gpu: Gpu) -> Rate | None:
    geforce = "geforce" in gpu.name.lower()
    fits = [r for r in _table()[0] if gpu.compute_capability in r.compute_capability]
    return next((r for r in fits if r.geforce == geforce), None)


@functools.lru_cache(maxsize=1)
def _table() -> tuple[tuple[Rate, ...], tuple[DatasheetRow, ...]]:
    data = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    known = {"compute_capability", "geforce", "source"}
    rates = tuple(
        Rate(
            compute_capability=tuple(entry["compute_capability"]),
            geforce=entry.get("geforce", False),
            source=entry["source"],
            flop={key: float(value) for key, value in entry.items() if key not in known},
        )
        for entry in data["rate"]
    )
    return rates, tuple(msgspec.convert(entry, DatasheetRow) for entry in data["gpu"])
