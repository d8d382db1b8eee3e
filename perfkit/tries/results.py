"""Result of a try: what was changed, what was run, what became of the results, and the comparison."""

from __future__ import annotations

import msgspec

from perfkit.compare.results import Comparison
from perfkit.tries.printed import Checked

SCHEMA_VERSION = 1
ACCEPT, REJECT, CANNOT_TELL = "accept", "reject", "cannot tell"


class Try(msgspec.Struct, kw_only=True):
    """One try. `comparison` is None where no times were measured; `machine` is the fingerprint of this machine."""

    schema: int = SCHEMA_VERSION
    perfkit: str
    id: str
    created: str
    command: list[str]
    decision: str
    reason: str
    change: str  # a digest of the difference
    files: list[str]  # that differ
    kept: bool = False  # the folder itself was changed, too
    checked: Checked
    comparison: Comparison | None = None
    stopped: str = ""  # why there are as many launches as there are
    steps_are: str = ""
    machine: str = ""
    machine_is: str = ""  # its processor and GPUs, in words
    torch: str = ""
    notes: list[str] = []
