"""The line of the model that a node of a graph comes from, by the stack that Dynamo noted when the model called it.

AOTAutograd gives nodes of the backward pass the stack of their forward node.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from typing import Any

_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def source_of(nodes: Sequence[Any]) -> str:
    """The line of the first of `nodes` that has a stack, as `file|line|function`: the innermost one outside of Python's
    library and installed packages, else the innermost; "" where there is none."""
    for node in nodes:
        stack = node.meta.get("stack_trace")
        if frames := _FRAME.findall(stack) if isinstance(stack, str) else []:
            own = [frame for frame in frames if not frame[0].startswith(("<", *_installed()))]
            return "|".join((own or frames)[-1])
    return ""


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    torch = getattr(sys.modules.get("torch"), "__file__", None) or paths["stdlib"]  # a checkout of it may be anywhere
    return (os.path.dirname(torch) + os.sep, *{paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
