"""Matrix products that a kernel computes on the vector units, found by its instructions.

They add products of two values that the kernel loaded, each of which it uses several times.
"""

from __future__ import annotations

import re

from perfkit.instructions.faults import Amounts
from perfkit.instructions.hot import operation_of
from perfkit.instructions.results import EXECUTED, KernelCode
from perfkit.instructions.waits import written_by

_SUMS = ("FFMA", "HFMA2", "DFMA")
_LOADS = ("LDS", "LDG", "LD.", "LDSM")
_MATRIX = ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA", "OMMA", "UTC")
_REGISTER = re.compile(r"-?\|?(R\d+)(?:\.\w+)*\|?")
_REUSE = 2.0  # sums of products a loaded value: a product of a matrix and a vector has one at most


def products(code: KernelCode) -> Amounts:
    """Return how often each sum of products was executed; nothing where values are not reused, or matrix units work."""
    executed = [one.counts.get(EXECUTED, 0.0) for one in code.instructions]
    loaded: set[str] = set()
    others: set[str] = set()
    values = 0.0
    for one, times in zip(code.instructions, executed, strict=True):
        operation, registers = written_by(one.sass)
        if operation.startswith(_MATRIX) and times:
            return [0.0] * len(executed)
        if operation.startswith(_LOADS):
            loaded |= registers
            values += times * len(registers)
        else:
            others |= registers if not operation.startswith(_SUMS) else set()
    made = [
        times if _accumulates(one.sass, operation_of(one), loaded - others) else 0.0
        for one, times in zip(code.instructions, executed, strict=True)
    ]
    return made if sum(made) >= _REUSE * values > 0 else [0.0] * len(made)


def _accumulates(sass: str, operation: str, loaded: set[str]) -> bool:
    """Return whether an instruction adds the product of two loaded values to a register."""
    if not operation.startswith(_SUMS):
        return False
    operands = sass.partition(operation)[2].split(",")
    found = [match[1] if (match := _REGISTER.fullmatch(part.strip())) else "" for part in operands]
    if len(found) < 4 or found[0] != found[3]:
        return False
    return found[1] != found[2] and {found[1], found[2]} <= loaded
