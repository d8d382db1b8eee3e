"""The instruction that another one waits for: the nearest load above it that writes a register that it reads, else the
barrier that its warp is at, or the last store before its end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfkit.instructions.results import Instruction

# By the state of a waiting warp: operations whose result arrives late. `short_scoreboard` is shared memory and MUFU.
_LATE = {
    "long_scoreboard": re.compile(r"LDG|LDL|LD(?:\.|$)|TEX|TLD|ATOMG?|RED|SULD|LDGSTS|LDTM"),
    "short_scoreboard": re.compile(r"LDS|LDSM|ATOMS|MUFU|S2R|S2UR|SHFL|I2F|F2I|F2F|POPC|VOTE|LDC"),
}
# A wait without registers: its samples are at the instruction after the barrier, or after the program's end.
_NEAREST = {"barrier": re.compile(r"BAR(\.|$)"), "drain": re.compile(r"ST|RED|ATOM")}
SCOREBOARDS = tuple(_LATE)
_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
_REGISTER = re.compile(r"(?<![A-Z])(U?R)(\d+)(?:\.(64))?")
_WIDTH = re.compile(r"\.(64|96|128|256)(?:\.|$)")
_FARTHEST = 600  # instructions above that are looked at
_WITHOUT_RESULT = (
    "ST",
    "RED",
    "BRA",
    "EXIT",
    "BAR",
    "DEPBAR",
    "BSYNC",
    "BSSY",
    "WARPSYNC",
    "NOP",
    "RET",
    "CALL",
    "MEMBAR",
)


def is_late(reason: str, operation: str) -> bool:
    """Return whether warps in the state `reason` may wait for the result of an operation."""
    late = _LATE.get(reason)
    return late is not None and late.match(operation) is not None


def nearest(code: Sequence[Instruction], place: int, reason: str) -> int | None:
    """Return the place of the barrier or the last store that the warps at `place` wait for; None for other states."""
    wanted = _NEAREST.get(reason)
    if wanted is None:
        return None
    return next((at for at in range(place, -1, -1) if wanted.match(_parts(code[at].sass)[0])), None)


def producer(code: Sequence[Instruction], place: int, reason: str) -> Instruction | None:
    """Return what `code[place]` waits for in the state `reason`; None where its registers do not say.

    Goes up through the addresses, so that a value from the end of a loop's body, or from a branch, is not found.
    """
    late = _LATE.get(reason)
    if late is None:
        at = nearest(code, place, reason)
        return None if at is None else code[at]
    wanted = _read(code[place].sass)
    for other in reversed(code[max(0, place - _FARTHEST) : place]):
        operation, written = written_by(other.sass)
        if not wanted & written:
            continue
        if late.match(operation):
            return other
        if not _PREDICATE.match(other.sass):
            wanted -= written
        if not wanted:
            return None
    return None


def _parts(sass: str) -> tuple[str, list[str]]:
    """The operation and the operands of an instruction."""
    text = _PREDICATE.sub("", sass.strip())
    operation, _, rest = text.partition(" ")
    return operation, [part.strip() for part in rest.split(",")] if rest else []


def written_by(sass: str) -> tuple[str, set[str]]:
    """Return the operation of an instruction, and the registers that it writes."""
    operation, operands = _parts(sass)
    if not operands or operation.split(".")[0].startswith(_WITHOUT_RESULT):
        return operation, set()
    width = _WIDTH.search(operation)
    count = int(width[1]) // 32 if width else 2 if ".WIDE" in operation else 1
    first = _REGISTER.fullmatch(operands[0].split(" ")[0])
    if first is None:
        return operation, set()
    return operation, {f"{first[1]}{int(first[2]) + more}" for more in range(count)}


def _read(sass: str) -> set[str]:
    """The registers that an instruction reads: its operands without the first, those of a store with it."""
    operation, operands = _parts(sass)
    plain = operation.split(".")[0].startswith(_WITHOUT_RESULT)
    found: set[str] = set()
    for operand in operands if plain else operands[1:]:
        for register in _REGISTER.finditer(operand):
            number = int(register[2])
            found |= {f"{register[1]}{number}"} | ({f"{register[1]}{number + 1}"} if register[3] else set())
    return found
