"""The machine and its limits: identity, datasheet peaks, measured ceilings.

Importing this package loads neither torch nor pandas; measuring runs torch in a process of its own.
"""

from __future__ import annotations

from perfkit.hardware.ceilings import Ceiling, Ceilings, SelfCheck, from_json, to_json
from perfkit.hardware.collectives.results import Sweep
from perfkit.hardware.identity import comparable, environment, fingerprint
from perfkit.hardware.store import kept_ceilings, load_or_measure, load_or_measure_collectives

__all__ = [
    "Ceiling",
    "Ceilings",
    "SelfCheck",
    "Sweep",
    "comparable",
    "environment",
    "fingerprint",
    "from_json",
    "kept_ceilings",
    "load_or_measure",
    "load_or_measure_collectives",
    "to_json",
]
