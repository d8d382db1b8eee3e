"""What a call of the CUDA or HIP runtime or driver does to the host, by its name."""

from __future__ import annotations

import re
from functools import lru_cache

SYNC, ALLOCATION, LAUNCH, DRIVER = "sync", "CUDA allocation", "launch", "driver"
_CALLS = (
    # `hipMemcpyWithStream` blocks, as copies do that are not asynchronous. A stream that is told to wait stops no host.
    (SYNC, re.compile(r"Synchronize|EventQuery|StreamQuery|^(cuda|hip)Memcpy(?!.*Async)")),
    (ALLOCATION, re.compile(r"Malloc|Free|MemAlloc|MemCreate|MemMap|MemHost|HostAlloc|HostRegister|MemPool")),
    (LAUNCH, re.compile(r"Launch|Memcpy|Memset")),
)


@lru_cache(maxsize=4096)
def cause_of_call(name: str) -> str:
    """What a call does: wait for the GPU, allocate or free memory, launch, or anything else ("driver")."""
    return next((cause for cause, pattern in _CALLS if pattern.search(name)), DRIVER)
