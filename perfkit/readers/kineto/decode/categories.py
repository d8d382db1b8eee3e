"""The kind of an event, by the word that its file has for it.

The words are enumerations, so that decoding makes no text of them, and each member has its byte in a
column: one join of bytes then has the kinds of the events of a piece. Any other word is `UNREAD`.
"""

from __future__ import annotations

from enum import Enum
from typing import Self

import numpy as np

from perfkit.readers.kineto.decode.events import (
    ANNOTATION,
    COPY,
    FILL,
    KERNEL,
    MARK,
    OPERATOR,
    OVERHEAD,
    PYTHON,
    RUNTIME,
)

ON_DEVICE = 5  # codes: first the kinds of host events, from here on the kinds of work on a device, …
ARROW = 9  # … an arrow from forward to backward …
MOMENT = 10  # … an instant …
BY_NAME = 11  # … and what a device did, whose kind its name tells
NEITHER = -1
UNREAD = "UNREAD"  # the name of any other word
_LONGEST = 60  # characters of such a word that are kept


class _Word(Enum):
    """A word and its code."""

    code: bytes

    def __new__(cls, word: str, code: int = NEITHER) -> Self:
        member = object.__new__(cls)
        member._value_, member.code = word, np.int8(code).tobytes()
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self:
        """Return a member of its own for any other word, which is kept for a warning."""
        member = object.__new__(cls)
        member._name_, member._value_, member.code = UNREAD, str(value)[:_LONGEST], np.int8(NEITHER).tobytes()
        return member


class Category(_Word):
    """Categories of events that last."""

    CPU_OP = "cpu_op", OPERATOR
    OLD_CPU_OP = "operator", OPERATOR  # before 2021, and in the first half of it:
    OLD_OPERATOR = "Operator", OPERATOR
    OLD_RUNTIME = "Runtime", RUNTIME
    USER_ANNOTATION = "user_annotation", ANNOTATION
    CUDA_RUNTIME = "cuda_runtime", RUNTIME
    CUDA_DRIVER = "cuda_driver", RUNTIME
    XPU_RUNTIME = "xpu_runtime", RUNTIME
    XPU_DRIVER = "xpu_driver", RUNTIME
    MTIA_RUNTIME = "mtia_runtime", RUNTIME
    GLOW_RUNTIME = "glow_runtime", RUNTIME
    OTHER_RUNTIME = "privateuse1_runtime", RUNTIME
    OTHER_DRIVER = "privateuse1_driver", RUNTIME
    PYTHON_FUNCTION = "python_function", PYTHON
    PROFILER = "overhead", OVERHEAD
    GPU_KERNEL = "kernel", ON_DEVICE + KERNEL
    GPU_COPY = "gpu_memcpy", ON_DEVICE + COPY
    GPU_FILL = "gpu_memset", ON_DEVICE + FILL
    OLD_GPU_KERNEL = "Kernel", ON_DEVICE + KERNEL
    OLD_GPU_COPY = "Memcpy", ON_DEVICE + COPY
    OLD_GPU_FILL = "Memset", ON_DEVICE + FILL
    MTIA_WORK = "mtia_ccp_events", BY_NAME
    GPU_ANNOTATION = "gpu_user_annotation", ON_DEVICE + MARK
    INSTANT = "cpu_instant_event"  # common, and not read, like the next two
    WAIT = "cuda_sync"
    SPAN = "Trace"  # of the profiler itself, over all that it recorded
    OTHER = ""


def on_mtia(name: str) -> int:
    """Return the code of what an MTIA device did: it moves data, waits for events or records them, or runs a kernel."""
    if name.startswith("event_"):
        return NEITHER
    return ON_DEVICE + (COPY if name == "dma_request" else KERNEL)


class InstantCategory(_Word):
    """The one category of instants, whatever their file calls it."""

    ANY = "", MOMENT


class ArrowCategory(_Word):
    """Categories of arrows; those from launches to work on a device are not read."""

    FORWARD_BACKWARD = "fwdbwd", ARROW
    LAUNCH = "ac2g"
    OLD_LAUNCH = "async_cpu_to_gpu"
    OTHER = ""
