"""How busy the units of a GPU are over the life of a kernel: its beginning, its middle and its end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

import msgspec

from perfkit import units
from perfkit.instructions.results import FILLED, CounterCourse, KernelCode

_END = 0.1  # of the life: its first and its last part
_HALF = 0.5  # of the most multiprocessors that have blocks at any time
_LEAST, _SAMPLES = 0.05, 2  # of the life, and samples: a shorter beginning or end is not worth a word


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Means of a course in the first tenth of a kernel's life, the middle and the last tenth; None without samples."""

    name: str
    first: float | None
    middle: float | None
    last: float | None


def shown(code: KernelCode) -> list[CounterCourse]:
    """Return the courses in per cent: of the peak, or of the most multiprocessors at any time."""
    made = []
    for course in code.courses:
        most = max(course.values)
        if course.name == FILLED and most > 0:
            scaled = [100 * value / most for value in course.values]
            made.append(msgspec.structs.replace(course, values=scaled, unit="%"))
        elif course.unit == "%":
            made.append(course)
    return made


def parts(code: KernelCode) -> list[Parts]:
    """Return the means of each course of `shown`, in per cent."""
    return [_parts(course, code.duration_ns) for course in shown(code) if code.duration_ns]


def _parts(course: CounterCourse, life: float | None) -> Parts:
    life = life or math.nan
    bounds = (0.0, _END * life, (1 - _END) * life, math.inf)
    means = [
        fmean(chosen) if chosen else None
        for low, high in pairwise(bounds)
        for chosen in [[v for at, v in zip(course.at_ns, course.values, strict=True) if low <= at < high]]
    ]
    return Parts(name=course.name, first=means[0], middle=means[1], last=means[2])


def said(code: KernelCode) -> Iterator[str]:
    """Sentences on how long the GPU takes to fill, and how long it stays under half full at the end."""
    course = next((one for one in code.courses if one.name == FILLED), None)
    if course is None or not code.duration_ns or not course.values:
        return
    full = [at for at, value in zip(course.at_ns, course.values, strict=True) if value >= _HALF * max(course.values)]
    begins, ends = full[0], code.duration_ns - full[-1]
    words = "under half as many multiprocessors have blocks as at the most"
    for time, which in ((begins, "In the first"), (ends, "In the last")):
        if time > max(_LEAST * code.duration_ns, _SAMPLES * course.interval_ns):
            yield f"{which} {units.text(time, 'ns')} ({time / code.duration_ns:.0%} of the kernel) {words}."
