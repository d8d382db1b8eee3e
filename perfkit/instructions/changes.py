"""The instructions or source lines of a kernel that take more or less of its time in another report."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from perfkit.instructions.hot import operation_of, place_of, source_text
from perfkit.instructions.results import SAMPLES, CodeChange, KernelCode

LEAST = 0.01  # of the longer launch: what changed by less is not listed


def changes(first: Sequence[KernelCode], second: Sequence[KernelCode]) -> list[CodeChange]:
    """Return what changed in the kernels of both, the largest difference first.

    Lines are compared where both reports name them, known by their text or else their number; else instructions,
    aligned by their operations. Times are shares of the samples of the longest launch, times its duration.
    """
    others = {code.name: code for code in second}
    found = [one for code in first if code.name in others for one in _of_kernel(code, others[code.name])]
    return sorted(found, key=lambda one: -abs(one.difference_ns))


def _of_kernel(first: KernelCode, second: KernelCode) -> list[CodeChange]:
    longest = max(first.duration_ns or 0.0, second.duration_ns or 0.0)
    if not (first.samples and second.samples and first.duration_ns and second.duration_ns):
        return []
    both_have_lines = all(any(instruction.line for instruction in code.instructions) for code in (first, second))
    made = _lines(first, second) if both_have_lines else _instructions(first, second)
    return [one for one in made if abs(one.difference_ns) >= LEAST * longest]


def _times(code: KernelCode) -> list[float]:
    """The part of the kernel's time of each instruction."""
    scale = (code.duration_ns or 0.0) / code.samples
    return [instruction.counts.get(SAMPLES, 0.0) * scale for instruction in code.instructions]


def _by_line(code: KernelCode) -> dict[tuple[str, str], tuple[str, float]]:
    """The place and time of each line, by its file's name and its text or number; by operation what has no line."""
    found: dict[tuple[str, str], tuple[str, float]] = {}
    for one, time in zip(code.instructions, _times(code), strict=True):
        text = source_text(code, one.file, one.line)
        place = place_of(one) if one.line else "no line"
        key = (place.rpartition(":")[0], text) if text else (place, "")
        found[key] = (place, found.get(key, ("", 0.0))[1] + time)
    return found


def _lines(first: KernelCode, second: KernelCode) -> list[CodeChange]:
    one, other = _by_line(first), _by_line(second)
    made = []
    for key in {**one, **other}:
        a, b = one.get(key), other.get(key)
        where = (b or a or ("", 0.0))[0]
        made.append(CodeChange(kernel=first.name, where=where, code=key[1], first_ns=a and a[1], second_ns=b and b[1]))
    return made


def _instructions(first: KernelCode, second: KernelCode) -> list[CodeChange]:
    """The instructions of both, those that stayed side by side."""
    words = [[operation_of(instruction) for instruction in code.instructions] for code in (first, second)]
    matched = SequenceMatcher(a=words[0], b=words[1], autojunk=False).get_opcodes()
    times, other_times = _times(first), _times(second)
    made: list[CodeChange] = []
    for tag, a, a_end, b, b_end in matched:
        same = range(a_end - a) if tag == "equal" else ()
        made += [_change(first, a + i, times, second, b + i, other_times) for i in same]
        if tag != "equal":
            made += [_change(first, i, times, second, None, other_times) for i in range(a, a_end)]
            made += [_change(first, None, times, second, i, other_times) for i in range(b, b_end)]
    return made


def _change(
    first: KernelCode, a: int | None, times: list[float], second: KernelCode, b: int | None, others: list[float]
) -> CodeChange:
    shown = second.instructions[b] if b is not None else first.instructions[a or 0]
    return CodeChange(
        kernel=first.name,
        where=f"+{shown.at:#x}",
        code=shown.sass,
        first_ns=times[a] if a is not None else None,
        second_ns=others[b] if b is not None else None,
    )
