"""What the name of an NVTX range says of the place of the work in it: step, pass and module.

perfkit's own names (`perfkit:step:3`, `perfkit:pass:backward`, `perfkit:module:transformer.h.0`) say it exactly. Of the
names that people give ranges themselves those count that can mean nothing else: "step 3", "Iteration_3", "forward",
"optimizer.step". "Step 10 to 20" or "forward_pre_hook" are names like any other.
"""

from __future__ import annotations

import re

from perfkit.readers.own_ranges import LINE, MODULE, PASS, STEP, line_of

_STEP = re.compile(
    r"(?:train(?:ing)?[ _-]?)?(?:step|iter|iteration)[ _:#-]*(\d{1,9})|ProfilerStep#(\d{1,9})", re.IGNORECASE
)
_PASSES = {
    "forward": ("forward", "forward pass", "fwd"),
    "backward": ("backward", "backward pass", "bwd"),
    "optimizer": ("optimizer", "optimizer step", "opt step", "optimizer.step"),
}
_PASS_OF = {word: name for name, words in _PASSES.items() for word in words}
_LONGEST = 40  # characters of a name that may be a plain word for a step or pass


def step_of(name: str) -> str | None:
    """The number of the step that a range called `name` is, as text; None where it is none."""
    if name.startswith(STEP):
        return name.removeprefix(STEP)
    match = _STEP.fullmatch(name.strip()) if len(name) <= _LONGEST else None
    return str(int(match[1] or match[2])) if match else None


def pass_of(name: str) -> str | None:
    """The pass that a range called `name` is."""
    if name.startswith(PASS):
        return name.removeprefix(PASS)
    plain = name.strip().lower() if len(name) <= _LONGEST else ""
    return _PASS_OF.get(plain) or _PASS_OF.get(plain.replace("_", " "))


def module_of(name: str) -> str | None:
    """The module that a range called `name` is, or that a line of a program serves most: perfkit's own names only."""
    if name.startswith(LINE):
        line = line_of(name)
        return max(line.served, key=lambda member: member[2])[0] if line and line.served else None
    return name.removeprefix(MODULE) if name.startswith(MODULE) else None
