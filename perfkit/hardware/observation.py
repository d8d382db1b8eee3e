"""One best rate seen while measuring, and the plan of what to measure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Progress = Callable[[str], object]

# Raised when what is measured changes: ceilings that are kept are then measured again.
METHOD, GPU_METHOD = "7", "8"
AGREE = 0.15  # the two best rounds of a ceiling should lie within this share of each other

KIB, MIB, GIB = 2**10, 2**20, 2**30


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The best rate of one round of one thing that was run.

    `resource` is "memory" or "memory in place" (rate in bytes/s, `working_set` in bytes), or an arithmetic unit (rate
    in FLOP/s). `what` names the pattern or product ("triad", "matmul 256×768×3072"), `how` says what ran it. `ok` is
    whether the results were right.
    """

    resource: str
    what: str
    how: str
    rate: float
    by: str  # "c" or "torch": who ran it
    round: int = 0
    working_set: float | None = None
    sizes: tuple[int, int] | None = None  # of attention: head size and length
    ok: bool = True


def method_of(device: str) -> str:
    """Return what says how ceilings of `device` are measured now."""
    return METHOD if device == "cpu" else GPU_METHOD


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """The extent of a measurement. Times in seconds are per item and round; sizes in bytes; `matmul_s` a precision."""

    sizes: tuple[int, ...]
    main_memory: int | None  # a working set far beyond the caches; None if memory has no room for one
    pattern_s: float = 0.010
    vector_s: float = 0.25
    matmul_s: float = 1.5
    torch_s: float = 13.0  # for all of torch's part; what has not run by then is left out
    rounds: int = 2
    more_rounds: int = 2  # for working sets whose rounds disagree
    more_until_s: float = 20.0  # none of these starts later
    shapes: tuple[tuple[int, int, int], ...] = ()
    # Products of zeros count too: a GPU at its power limit clocks by how many bits flip, and a step's tensors,
    # gradients above all, may run up to 19 % faster than normally distributed numbers (seen on an H200).
    zeros: bool = False
    least_flop_s: float = 1e10  # what any device of this kind reaches: whether a first product fits into its time


# Products of GPT-2's training step (rows × C × 4C, 4C × C, C × V at B=4, T=64), and squares.
GPT2_SHAPES = ((256, 768, 3072), (256, 3072, 768), (256, 768, 50257))
# The small squares are nearly as fast as the best, and short enough to run uninterrupted on a busy machine.
CPU_SHAPES = (*((n,) * 3 for n in (256, 384, 512)), *GPT2_SHAPES[:2], (1024,) * 3, (2048,) * 3, GPT2_SHAPES[2])
# The last but one is the fastest on some GPUs at their power limit: 909 TFLOP/s of zeros on an H200, 890 the cube.
GPU_SHAPES = (
    (2048,) * 3, (16384, 768, 3072), (4096,) * 3, (16384, 768, 50304), (4096, 8192, 8192), (8192,) * 3,
)  # fmt: skip


def cpu_plan(last_cache: int | None, memory: int | None) -> Effort:
    """Working sets from 64 KiB by √2 to four times the last cache (256 MiB at least), within a sixteenth of memory."""
    room = (memory or 4 * GIB) // 16
    largest = min(max(256 * MIB, 4 * (last_cache or 0)), max(room, 64 * MIB))
    beyond = min(2 * largest, room)
    return Effort(
        sizes=_sizes(64 * KIB, largest, 2),
        main_memory=beyond if beyond >= 2 * largest else None,
        shapes=CPU_SHAPES,
    )


# Near the capacity of a GPU's L2 bandwidth falls to main memory's, and a kernel gets the roof of the next smaller
# size that was measured.
L2_PARTS = (0.75, 0.9)


def gpu_plan(memory: int, l2_bytes: int | None = None) -> Effort:
    """Working sets from 1 MiB by factors of 2 to an eighth of the GPU's memory, 4 GiB at most; and parts of its L2."""
    largest = min(4 * GIB, memory // 8)
    parts = [round(part * (l2_bytes or 0) / KIB) * KIB for part in L2_PARTS]
    return Effort(
        sizes=tuple(sorted({*_sizes(MIB, largest, 1), *(size for size in parts if MIB < size < largest)})),
        main_memory=None,
        pattern_s=0.05,
        matmul_s=1.0,
        shapes=GPU_SHAPES,
        zeros=True,
        least_flop_s=1e12,
    )


def _sizes(first: int, last: int, per_octave: int) -> tuple[int, ...]:
    """From `first` up to `last` inclusive in steps of 2^(1/per_octave), rounded to whole KiB."""
    sizes, index = [], 0
    while (size := first * 2 ** (index / per_octave)) < last * 0.99:
        sizes.append(round(size / KIB) * KIB)
        index += 1
    return (*sizes, last)
