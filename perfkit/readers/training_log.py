"""llm.c's training log `main.log`: a line for each measurement of a step.

    s:250 tel:5.9712                      validation loss
    s:250 eval:0.2741                     HellaSwag accuracy
    s:251 trl:5.8123 lr:1.2e-04 norm:1.93 training loss, learning rate, norm of the gradient

A restart goes back to the last checkpoint and appends: a later line of a step overwrites what an earlier one says of
the same quantity. Any other line is damaged: it is left out and reported by its number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.errors import InputError

VALIDATION, ACCURACY, LOSS, RATE, NORM = "tel", "eval", "trl", "lr", "norm"
QUANTITIES = (VALIDATION, ACCURACY, LOSS, RATE, NORM)
_LINE = re.compile(r"s:\d+((?: +(?:tel|eval|trl|lr|norm):\S+)+)")
_STEP = re.compile(r"s:(\d+) ")
_PAIR = re.compile(r" +(\w+):(\S+)")
_LEAST = 0.5  # share of the first lines that must be of the log's form
_LOOKED_AT = 20
_MOST_BYTES = 1 << 30


@dataclass
class TrainingLog:
    """`series` maps a quantity to (step, value) by rising step; `damaged` are (line number, text) of bad lines.

    `restarts` are the steps at which the log went back, `overwritten` how many values a later line replaced.
    """

    path: Path
    series: dict[str, list[tuple[int, float]]]
    lines: int
    damaged: list[tuple[int, str]] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    overwritten: int = 0

    def last(self, quantity: str) -> tuple[int, float] | None:
        """The last step and value of a quantity, None without any."""
        values = self.series.get(quantity)
        return values[-1] if values else None


def is_training_log(text: bytes) -> bool:
    """Return whether most of the first lines of a file that begins with `text` are of the log's form."""
    lines = [line for line in text[:8192].decode("utf-8", "replace").splitlines() if line.strip()][:_LOOKED_AT]
    matching = sum(1 for line in lines if _LINE.fullmatch(line.rstrip()))
    return bool(lines) and matching / len(lines) > _LEAST


def read_log(path: Path) -> TrainingLog:
    """Read a training log. Raises `InputError` when it cannot be read or holds no measurement."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than 1 GiB, which no training log is.")
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    lines = text.splitlines()
    log = TrainingLog(path, {}, len(lines))
    values: dict[str, dict[int, float]] = {quantity: {} for quantity in QUANTITIES}
    before = -1
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        parsed = parse_line(line)
        if parsed is None:
            log.damaged.append((number, line))
            continue
        step, found = parsed
        if step < before:
            log.restarts.append(step)
        before = step
        for quantity, value in found.items():
            log.overwritten += step in values[quantity]
            values[quantity][step] = value
    log.series = {quantity: sorted(known.items()) for quantity, known in values.items() if known}
    if not log.series:
        raise InputError(f"{path} holds no line of a training log.", "A line reads: s:250 trl:5.81 lr:1e-4 norm:1.9.")
    return log


def parse_line(line: str) -> tuple[int, dict[str, float]] | None:
    """The step and its values in a line; None when it is damaged. A loss that diverged (nan, inf) is a value."""
    match = _LINE.fullmatch(line.rstrip())
    if match is None:
        return None
    found: dict[str, float] = {}
    for name, text in _PAIR.findall(match[1]):
        try:
            value = float(text)
        except ValueError:
            return None
        if name in found:
            return None
        found[name] = value
    step = _STEP.match(line)
    assert step is not None, line
    return int(step[1]), found
