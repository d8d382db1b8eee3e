"""A kernel that Inductor fused, as perfkit keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfkit.cost.model import Call


@dataclass(frozen=True)
class GeneratedKernel:
    """A generated kernel: its minimal traffic in bytes, the operations of its loops, and the operators they come from.

    Each call is one operation over all iterations of its loop; `operators` are aten names, as Inductor says.
    """

    bytes_read: float
    bytes_written: float
    calls: tuple[Call, ...]
    # One source may serve several places of the model: these are of the first one, and no part of its identity.
    operators: tuple[str, ...] = field(compare=False)
    # On a GPU, of each of its loops, one after the other: bytes that it reads and writes, instructions that it issues.
    loops: tuple[tuple[float, float], ...] = ()
    counted: bool = True  # False: a template's work is in none of the calls (a convolution, an unknown mask)
