"""Lines that PyTorch's profiler prints on stderr when it starts and stops, which are not the program's output."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator

_NOTICES = re.compile(
    rb"^(USDT:.*profiler_(start|stop)|"
    rb"(\w+:[-\d :]+[\w.]+:\d+\] )?ERROR: External init callback must run in same thread|"
    rb"(INFO|WARNING|STAGE|ERROR):[-\d :]+[\w.]+\.cpp:\d+\]|"
    # PyTorch's own, of ranges that are open when it stops, or that other threads open just then.
    rb"\[W[\d :.]+ (collection|profiler_\w+|kineto_\w+|observer|record_function)\.cpp:\d+\])"
)
_lock = threading.Lock()


@contextlib.contextmanager
def without_notices_of_kineto() -> Iterator[None]:
    """Keep Kineto's own lines off stderr while the block runs; what else is written there meanwhile follows after it.

    Its library writes to the descriptor, so that is replaced. Nested blocks are one block.
    """
    if not _lock.acquire(blocking=False):
        yield
        return
    try:
        with tempfile.TemporaryFile() as written:
            try:
                sys.stderr.flush()
                kept = os.dup(2)
            except (AttributeError, OSError, ValueError):  # a program without a stderr
                yield
                return
            os.dup2(written.fileno(), 2)
            try:
                yield
            finally:
                with contextlib.suppress(AttributeError, OSError, ValueError):
                    sys.stderr.flush()
                os.dup2(kept, 2)
                os.close(kept)
                written.seek(0)
                for line in written:
                    if not _NOTICES.match(line):
                        os.write(2, line)
    finally:
        _lock.release()
