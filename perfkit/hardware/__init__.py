"""What the machine is and what it can do: identity, datasheet peaks, measured ceilings.

Importing this package loads neither torch nor pandas; measuring runs torch in a process of its own.
"""

from __future__ import annotations

from perfkit.hardware.ceilings import Ceiling, Ceilings, SelfCheck, from_json, to_json
from perfkit.hardware.identity import comparable, environment, fingerprint
from perfkit.hardware.store import load_or_measure

__all__ = [
    "Ceiling",
    "Ceilings",
    "SelfCheck",
    "comparable",
    "environment",
    "fingerprint",
    "from_json",
    "load_or_measure",
    "to_json",
]
