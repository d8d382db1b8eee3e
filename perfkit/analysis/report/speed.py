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
MATRIX = {"fp32": "matrix_fp32", "tf32": "matrix_tf32", "bf16": "matrix_bf16", "fp8": "matrix_bf16"}
# Parts of a language model's FLOP that `--dtype fp8` computes in fp8; attention and head are in bf16, and of parts by
# other names it is not known.
IN_FP8 = ("qkv", "queries", "keys_values", "projection", "mlp")
IN_BF16 = ("attention_scores", "attention_values", "logits")


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
    together where ranks have one each. Of a step in two precisions each part's FLOP are over its own ceiling.
    """
    parts = manifest.workload.model_flop
    flop = sum(parts.values()) if parts else None
    step = step_time(run.samples_ns)
    by_unit = _flop_by_unit(manifest)
    measured = {unit: ceilings.compute.get(unit) for unit in by_unit} if ceilings else {}
    if not measured or step is None or not trusted(run):
        return None, flop, ""
    ideal, words = 0.0, []
    for unit, rate in measured.items():
        if not rate:
            return None, flop, ""
        ideal += by_unit[unit] / rate
        words.append(f"the measured {unit_name(unit)} ceiling ({units.text(rate, 'FLOP/s')})")
    said = " and ".join(words) + (f", each for its part of the FLOP ({_shares(by_unit)})" if len(words) > 1 else "")
    if manifest.settings.ranks > 1 and manifest.settings.device != "cpu":
        ideal /= manifest.settings.ranks
        said += f" of each of {manifest.settings.ranks} GPUs"
    return ideal / (step.value / 1e9), flop, said


def _flop_by_unit(manifest: Manifest) -> dict[str, float]:
    """The model's FLOP a step by the matrix unit that computes them; empty where that is not known."""
    parts, dtype = manifest.workload.model_flop, manifest.settings.dtype
    if dtype != "fp8":
        return {MATRIX[dtype]: sum(parts.values())} if parts and dtype in MATRIX else {}
    if not parts or not set(parts) <= {*IN_FP8, *IN_BF16}:
        return {}
    found: dict[str, float] = {}
    for part, flop in parts.items():
        unit = "matrix_fp8" if part in IN_FP8 else MATRIX[dtype]
        found[unit] = found.get(unit, 0.0) + flop
    return found


def _shares(by_unit: dict[str, float]) -> str:
    whole = sum(by_unit.values())
    return ", ".join(f"{unit.removeprefix('matrix_')} {flop / whole:.0%}" for unit, flop in by_unit.items())
