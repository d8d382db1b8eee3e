"""The names that perfkit gives its own ranges (`perfkit.ranges`), as every reader finds them in a profile.

    perfkit:step:3      perfkit:pass:backward      perfkit:module:transformer.h.0
    perfkit:line:backward:132:symbol:transformer.h.0.mlp|gelu|1      perfkit:graph:0

Apart from the readers, so that one of them need not import another.
"""

from __future__ import annotations

import re
from typing import NamedTuple

STEP, PASS, MODULE, LINE = "perfkit:step:", "perfkit:pass:", "perfkit:module:", "perfkit:line:"
GRAPH = "perfkit:graph:"
ROOT = "(root)"  # the module path of what the model does itself, outside its modules
FORWARD_PASSES = ("forward", "prefill", "decode")  # in which the model itself runs
_LINE_NAME = re.compile(r"perfkit:line:(\w+):(\d{1,9}):(\w+):(.*)", re.DOTALL)


class Line(NamedTuple):
    """A line of a program: forward or backward, its number in generated.txt, evidence, what it serves with shares."""

    program: str
    number: int
    evidence: str
    served: tuple[tuple[str, str, float], ...]


def line_of(name: str) -> Line | None:
    """What the name of a range says of a line; None for any other name, and for a damaged one."""
    found = _LINE_NAME.fullmatch(name)
    if found is None:
        return None
    served = []
    for part in found[4].split(";") if found[4] else ():
        words = part.split("|")
        try:
            served.append((words[0], words[1], float(words[2])))
        except (IndexError, ValueError):
            return None
    return Line(found[1], int(found[2]), found[3], tuple(served))
