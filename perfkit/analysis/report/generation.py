"""The phases of a step that generates tokens, against their roof.

A pass of the model must read its weights once, and the cache of keys and values up to its position; or do its FLOP,
where these take longer. All ceilings are measured ones: memory's at as many bytes, of all of them or of those read, and
the matrix units' in the precision of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfkit import units
from perfkit.analysis.report import speed
from perfkit.analysis.results import PhaseReport
from perfkit.analysis.roofline.roof import unit_name
from perfkit.run_folder import BackendRun, Manifest, Phase

if TYPE_CHECKING:
    from perfkit.hardware.ceilings import Ceilings

PREFILL = "prefill"
SLOW = 99  # the percentile of slow tokens


def phases(run: BackendRun, manifest: Manifest, ceilings: Ceilings | None) -> list[PhaseReport]:
    """Return the measured and the least time of each phase's passes; nothing for a wrong run, or without tokens."""
    if not speed.trusted(run) or not run.tokens_ns:
        return []
    rows = manifest.settings.batch_size
    made = []
    for phase in manifest.workload.phases:
        first = phase.name == PREFILL
        samples = [ns for step in run.tokens_ns for ns in (step[:1] if first else step[1:])]
        made.append(_phase(phase, samples, None if first else rows, manifest.settings.dtype, ceilings))
    return made


def _phase(
    phase: Phase, samples: Sequence[float], rows: int | None, dtype: str, ceilings: Ceilings | None
) -> PhaseReport:
    time = speed.step_time(samples)
    assert time is not None
    roof, bound, ceiling = roof_of(phase, dtype, ceilings) if ceilings else (None, "", "")
    rate = phase.tokens / time.value * 1e9
    return PhaseReport(
        name=phase.name,
        runs=phase.runs,
        time=time,
        slow_ns=float(np.percentile(samples, SLOW)),
        tokens_per_second=rate,
        user_tokens_per_second=rate / rows if rows else None,
        flop=phase.flop,
        weight_bytes=phase.weight_bytes,
        cache_bytes=phase.cache_bytes,
        roof_ns=roof,
        bound=bound,
        ceiling=ceiling,
        efficiency=roof / time.value if roof else None,
        headroom_ns=time.value - roof if roof else None,
    )


def roof_of(phase: Phase, dtype: str, ceilings: Ceilings) -> tuple[float | None, str, str]:
    """The least time of a pass in ns, what sets it, and the ceiling in words; None where no bandwidth is known."""
    moved = phase.weight_bytes + phase.cache_bytes
    if not ceilings.envelope():
        return None, "", ""
    # Prefill writes the cache; decode reads it but for the one position that it writes.
    read = phase.weight_bytes + (0.0 if phase.name == PREFILL else phase.cache_bytes)
    seconds, memory = ceilings.memory_time(read, moved - read, moved)
    resource = speed.MATRIX.get(dtype, "")
    matrix = ceilings.compute.get(resource)
    by_memory = seconds * 1e9
    by_matrix = phase.flop / matrix * 1e9 if matrix else 0.0
    if matrix and by_matrix > by_memory:
        return by_matrix, unit_name(resource), units.text(matrix, "FLOP/s")
    return by_memory, "memory", units.text(memory.value, "B/s")
