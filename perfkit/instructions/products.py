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
    executed = [instruction.counts.get(EXECUTED, 0.0) for instruction in code.instructions]
    loaded: set[str] = set()  # registers that were last written by a load,
    summed: set[str] = set()  # or by a sum of products, whose register compilers change on the way
    made, values = [0.0] * len(executed), 0.0
    for place, (one, times) in enumerate(zip(code.instructions, executed, strict=True)):
        operation, registers = written_by(one.sass)
        if operation.startswith(_MATRIX) and times:
            return [0.0] * len(executed)
        if operation.startswith(_SUMS) and _accumulates(one.sass, operation_of(one), loaded, summed):
            made[place] = times
        loads, sums = operation.startswith(_LOADS), operation.startswith(_SUMS)
        loaded = loaded | registers if loads else loaded - registers
        summed = summed | registers if sums else summed - registers
        values += times * len(registers) if loads else 0.0
    return made if sum(made) >= _REUSE * values > 0 else [0.0] * len(made)


def _accumulates(sass: str, operation: str, loaded: set[str], summed: set[str]) -> bool:
    """Return whether an instruction adds the product of two loaded values to a sum."""
    operands = sass.partition(operation)[2].split(",")
    found = [match[1] if (match := _REGISTER.fullmatch(part.strip())) else "" for part in operands]
    if len(found) < 4 or not (found[0] == found[3] or found[3] in summed):
        return False
    return found[1] != found[2] and {found[1], found[2]} <= loaded
