"""Step times, speed-ups and MFU of a backend, with their intervals; shown only where its results are correct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfkit import statistics, units
from perfkit.analysis.results import Interval
from perfkit.analysis.roofline.roof import unit_name
from perfkit.run_folder import BackendRun, Manifest

if TYPE_CHECKING:
    from perfkit.hardware.ceilings import Ceilings

REFERENCE = "eager"
MATRIX = {"fp32": "matrix_fp32", "tf32": "matrix_tf32", "bf16": "matrix_bf16"}


def step_time(samples_ns: Sequence[float]) -> Interval | None:
    """Median step in ns with its interval; None without samples."""
    return _interval(statistics.median(samples_ns)) if samples_ns else None


def compare(slower: BackendRun, faster: BackendRun) -> Interval | None:
    """Median step of `slower` over that of `faster`; None where one has no samples."""
    if not slower.samples_ns or not faster.samples_ns:
        return None
    return _interval(statistics.ratio_of_medians(slower.samples_ns, faster.samples_ns))


def _interval(estimate: statistics.Estimate) -> Interval:
    return Interval(estimate.value, estimate.low, estimate.high, estimate.n)


def trusted(run: BackendRun) -> bool:
    """Return whether a speed of this backend may be shown: it finished, was timed, and its results were checked and
    right, or are a program's own."""
    checked = run.own or (run.correctness is not None and run.correctness.ok)
    return run.status == "ok" and run.timed and checked and bool(run.samples_ns)


def speedup(run: BackendRun, manifest: Manifest) -> Interval | None:
    """Return the speed relative to eager; None for eager itself, and if either cannot be trusted."""
    reference = manifest.backend(REFERENCE)
    if reference is None or run.name == REFERENCE or not trusted(run) or not trusted(reference):
        return None
    return compare(reference, run)


def model_flops_utilization(
    run: BackendRun, manifest: Manifest, ceilings: Ceilings | None
) -> tuple[float | None, float | None, str]:
    """MFU, the model's FLOP a step, and the ceiling in words.

    MFU = hand-worked matrix FLOP of a step / median step / measured matrix ceiling of the run's precision, of all GPUs
    together where ranks have one each.
    """
    parts = manifest.workload.model_flop
    flop = sum(parts.values()) if parts else None
    resource = MATRIX.get(manifest.settings.dtype, "")
    ceiling = ceilings.compute.get(resource) if ceilings else None
    step = step_time(run.samples_ns)
    if flop is None or not ceiling or step is None or not trusted(run):
        return None, flop, ""
    words = f"the measured {unit_name(resource)} ceiling ({units.text(ceiling, 'FLOP/s')})"
    if manifest.settings.ranks > 1 and manifest.settings.device != "cpu":
        ceiling *= manifest.settings.ranks
        words += f" of each of {manifest.settings.ranks} GPUs"
    return flop / (step.value / 1e9) / ceiling, flop, words
