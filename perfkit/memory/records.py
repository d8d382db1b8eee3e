"""A memory snapshot in columns: the allocator's events, its segments and blocks, and stacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

ALLOC, FREE, FREED, SEGMENT, SEGMENT_FREE, FAILED, OTHER = range(7)
# The allocator's words for its events. A free is asked for, and completed when no stream uses the block any more.
ACTIONS = {
    "alloc": ALLOC, "free_requested": FREE, "free_completed": FREED, "segment_alloc": SEGMENT, "segment_map": SEGMENT,
    "segment_free": SEGMENT_FREE, "segment_unmap": SEGMENT_FREE, "oom": FAILED,
}  # fmt: skip
ACTIVE, PENDING = "active_allocated", ("active_pending_free", "active_awaiting_free")


class StackFrame(NamedTuple):
    """A line of a stack."""

    file: str
    line: int
    function: str


Stack = tuple[StackFrame, ...]  # the innermost frame first


@dataclass(frozen=True)
class MemoryBlock:
    """A part of a segment; `size` in bytes, of which `requested` were asked for (None: unknown)."""

    address: int
    size: int
    requested: int | None
    state: str
    stack: int  # index into the stacks of the snapshot

    @property
    def allocated(self) -> bool:
        """Return true where a tensor holds it."""
        return self.state == ACTIVE

    @property
    def free(self) -> bool:
        """Return true where the allocator may give it out."""
        return self.state != ACTIVE and self.state not in PENDING


@dataclass(frozen=True)
class Segment:
    """Memory that the allocator got from the driver. `large`: of the pool for blocks above 1 MiB."""

    address: int
    size: int
    stream: int
    large: bool
    expandable: bool
    private: bool  # of a CUDA graph's own pool
    blocks: tuple[MemoryBlock, ...]
    allocated: int | None = None  # bytes in use by the allocator's own count


@dataclass
class AllocatorEvents:
    """The allocator's events on one device in their order, a column each; times in µs, empty where they are unknown."""

    action: Any
    address: Any
    size: Any
    time_us: Any
    stack: Any

    def __len__(self) -> int:
        return len(self.action)


@dataclass
class SnapshotDevice:
    """One device of a snapshot."""

    index: int
    segments: list[Segment]
    trace: AllocatorEvents

    @property
    def blocks(self) -> list[MemoryBlock]:
        """The blocks of all segments."""
        return [block for segment in self.segments for block in segment.blocks]

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def allocated(self) -> int:
        """Bytes that tensors hold: by the allocator's own count, where the segments have one."""
        return sum(
            sum(block.size for block in segment.blocks if block.allocated)
            if segment.allocated is None
            else segment.allocated
            for segment in self.segments
        )


@dataclass(frozen=True)
class NamedTensor:
    """The program's own word for the tensor at an address, such as `parameters`, "h.0.mlp.weight"."""

    kind: str
    name: str
    size: int = 0  # bytes of its storage


@dataclass(frozen=True)
class Retained:
    """Bytes that the forward pass of a repeated block retained next to its input, and how long it took."""

    path: str
    size: int
    took_ns: float | None


@dataclass
class Snapshot:
    """A whole snapshot. `known` by address, and `blocks`, are there where the program was watched by perfkit."""

    source: str
    devices: list[SnapshotDevice]
    stacks: list[Stack]
    settings: dict[str, Any] = field(default_factory=dict)
    known: dict[int, NamedTensor] = field(default_factory=dict)
    blocks: list[Retained] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
