"""CPU tensors whose memory is kept when they are freed, so that no step takes fresh pages: `keeping.cpp`.

By itself the C library gives a block of more than 32 MB back to the system when it is freed, and the free end of its
heap (mallopt(3)). A training step that frees its activations and gradients then gets them back as fresh pages, each of
which the kernel clears: 1.2 GB and 15 % of the CPU time of a step of GPT-2 124M.
"""

from __future__ import annotations

import sys
from pathlib import Path

from perfkit.kernels.c import native

SOURCE = Path(__file__).with_name("keeping.cpp")

_kept = False


def keep_freed() -> bool:
    """Let tensors of this process be allocated so from now on, for good; return whether that was possible.

    It is on Linux with a C++ compiler. Peak memory may be higher: a block serves tensors of its size or a little less.
    """
    global _kept
    if not _kept and sys.platform.startswith("linux"):
        library = native.load(SOURCE)
        _kept = library is not None and library.perfkit_keep_freed() == 1
    return _kept
