"""Room on the heap for a profiled step, so that what the profiler keeps does not push tensors onto fresh pages.

A profiler keeps a few MB of records a step. On a heap of tensors that is much: a record lands in the free block that a
tensor left, the next tensor of that size no longer fits there, and the heap grows by a tensor whose pages the kernel
must clear while the step runs. Seen with a model whose logits take 8.4 MB: 1.5 MB of records, but 33.5 MB and 8200 new
pages a profiled step, against some 3000 pages before; with room on the heap none.

So the heap is grown before, its pages are touched, and glibc is told to keep them. Only glibc's heap is known to do so;
and where tensors do not lie on the heap (`perfkit.kernels.c.keeping`) there is nothing to protect.

A step that takes much of its memory as fresh pages by itself gets no room, profiler or not: there its tensors would lie
on old pages, and the profile would miss what the step pays. Seen with GPT-2 124M under torch.compile: 1.5 GB of fresh
pages a step, 0 to 0.6 GB in a profiled step with room, 1.4 to 1.5 GB without; and profiled steps a quarter shorter than
timed ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from typing import Any

from perfkit.capture import memory

MOST = 1.5e9  # bytes: glibc compares the free end of its heap with a 32-bit threshold
SHARE = 1 / 8  # of the memory that is available
GIVEN_BACK = 1 / 8  # of what the process holds: who takes more anew in a step has an allocator that gives memory back
_BLOCK = 64 * 1024  # below the least size that malloc maps apart from the heap
_TRIM_THRESHOLD = -1  # malloc.h
_NEVER = 2**31 - 1
_USUAL = 64 * 1024 * 1024  # where glibc's own threshold ends up once large tensors have been freed


def room(available: float | None, resident: float | None, fresh: float) -> int:
    """Bytes to make room for, of `available`, for a process that holds `resident`; 0 where either is unknown, and for
    steps that take more than a share of it as `fresh` pages by themselves.

    As much as the process holds already: a small model has small tensors to displace, and touching pages takes time.
    """
    if available is None or resident is None or fresh > resident * GIVEN_BACK:
        return 0
    return int(min(MOST, available * SHARE, resident))


@contextlib.contextmanager
def with_room(device: str, fresh: float) -> Iterator[int]:
    """Room on the heap while the block runs; gives its bytes, 0 where none is made.

    `fresh` is what a step without the profiler takes as fresh pages, in bytes. None is made where that is much, for a
    GPU, with another C library, and where tensors keep their memory apart from the heap.
    """
    from perfkit.kernels.c import keeping

    wanted = device == "cpu" and not keeping.keeps_freed()
    size = room(memory.available_bytes(), memory.resident_bytes(), fresh) if wanted else 0
    library = glibc() if size else None
    if library is None:
        yield 0
        return
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
    blocks = [library.malloc(_BLOCK) for _ in range(size // _BLOCK)]
    for block in blocks:
        if block:
            ctypes.memset(block, 1, _BLOCK)
    for block in reversed(blocks):
        library.free(block)
    try:
        yield size
    finally:
        library.mallopt(_TRIM_THRESHOLD, _USUAL)
        library.malloc_trim(0)


def glibc() -> Any:
    """The C library of this process where it is glibc, else None."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return None
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    library.mallopt.argtypes, library.malloc_trim.argtypes = [ctypes.c_int, ctypes.c_int], [ctypes.c_size_t]
    return library
