"""Grid, block and shared memory of each launch, as the Python file next to a CUDA source declares them.

    def gelu_forward_v3(host: Host, x: Argument, y: Argument, n: int, *, block: int = 256) -> None:
        width = host.width(n, x, y)
        host.launch(f"gelu_forward_v3<T, {width}>", ceil(n, block * width), block, x, y, n)

A host function takes the input tensors, the output tensors and the operation's scalars, like a kernel in any language,
and records its launches; `T` is the type of the working precision. It runs once for each combination of sizes and
alignments, and what it recorded is replayed at each call: so it may look at the integers, but not at the values of
tensors, and the floats come as `Argument` too. `block` is a keyword whose values `perfkit bench` may sweep.

A kernel's parameters are pointers, int64 and double, in the order of `host.launch`'s arguments; or, for sm_90 alone,
tensor maps (`host.panels`). A host function for some GPUs or sizes leaves the rest to another language
(`host.leave_to`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

VECTOR_BYTES = 16  # the widest access of one thread
SUM_WARPS = 8  # of a block that sums over rows
SUM_BLOCKS = 4  # of a multiprocessor, with up to 64 registers a thread
# `packs` and `warps` of a block by its `tiles`: of those tried on an H100 the fastest for Llama 1b's products.
TILE_FORMS = {1: (2, 16), 2: (4, 8), 4: (2, 8)}
SYSTEM_SHARED_BYTES = 2048  # of a block, for what the kernel and the system need themselves


@dataclass(frozen=True)
class Argument:
    """A tensor, a float or scratch memory of a call, by its place among the values of the call.

    `misaligned` is the address modulo 16.
    """

    place: int
    misaligned: int = 0


@dataclass(frozen=True)
class Panels(Argument):
    """A tensor of bf16 as Hopper's copy engine sees it (a tensor map, passed by value): `matrices` of `rows` rows and
    `columns` columns, of which one copy brings 64 columns of `copied` rows."""

    matrices: int = 0
    rows: int = 0
    columns: int = 0
    copied: int = 0


@dataclass(frozen=True)
class GpuLimits:
    """Properties of the GPU that a host function may read; `shared` is the most bytes of shared memory of a block."""

    arch: str
    multiprocessors: int
    shared: int


@dataclass(frozen=True)
class HostLaunch:
    """One recorded launch: threads of a block in one dimension; `arguments` are constants or places.

    `early`: the kernel waits itself for the one before it on the stream (early.cuh), and may begin while that one ends.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: int
    shared: int
    arguments: tuple[Argument | int, ...]
    early: bool = False


@dataclass(frozen=True)
class RegisterRow:
    """How a row is held in registers: `packs` accesses by each of `threads` threads, `rows` rows a block."""

    threads: int
    packs: int
    block: int

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.block // self.threads


@dataclass(frozen=True)
class SharedRow:
    """How a row is held in shared memory: each of `blocks` blocks of a cluster holds a part in `bytes` bytes."""

    blocks: int
    bytes: int


@dataclass(frozen=True)
class Tile:
    """How tensor cores take a few rows (tiles.cuh): `tiles` times eight of them a block, of `warps` warps, whose lanes
    have `packs` accesses of each of two outputs under way at once, and as many that are asked for next."""

    tiles: int
    packs: int
    warps: int

    OUTPUTS = 16  # of a block

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return 8 * self.tiles

    @property
    def parameters(self) -> str:
        """The arguments of the kernel's template."""
        return f"{self.tiles}, {self.packs}, {self.warps}"

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        return 4 * self.packs * 32 * self.warps * VECTOR_BYTES


@dataclass
class Host:
    """Records the launches of one call. `item` is the bytes of an element of the working precision."""

    device: GpuLimits
    item: int
    values: int  # tensors and floats of the call; scratch memory follows
    steps: list[HostLaunch] = field(default_factory=list)
    scratches: list[int] = field(default_factory=list)  # bytes of each
    instead: str = ""  # the language whose version runs this call

    def width(self, row: int, *tensors: Argument) -> int:
        """Elements that one access may take: the widest for which every row of `row` elements starts aligned."""
        width = VECTOR_BYTES // self.item
        while width > 1 and (row % width or any(t.misaligned % (width * self.item) for t in tensors)):
            width //= 2
        return width

    def row_in_registers(self, columns: int, width: int, block: int, values: int = 32) -> RegisterRow | None:
        """The fewest threads that hold a row, each at most `values` of it: one warp, with `block // 32` of them in a
        block, or a block of its own. None for a row too long for that."""
        for threads in (32, 64, 128, 256, 512):
            packs = max(1, ceil(columns, threads * width))
            if packs * width <= values:
                return RegisterRow(threads, packs, max(block, 32) // 32 * 32 if threads == 32 else threads)
        return None

    def tile(self, rows: int, columns: int, *read: Argument) -> Tile | None:
        """How tensor cores take `rows` rows; None in fp32, of one row, or where accesses would not be aligned."""
        if self.item != 2 or rows < 2 or self.width(columns, *read) < VECTOR_BYTES // self.item:
            return None
        tiles = next((t for t in TILE_FORMS if 8 * t >= rows), max(TILE_FORMS))
        packs, warps = TILE_FORMS[tiles]
        return Tile(tiles, packs, min(warps, ceil(columns, 32 * packs)))

    def shared_rows(self, columns: int, rows: int = 1, resident: int = 2) -> SharedRow | None:
        """The fewest blocks of a cluster, each with its part of `rows` rows, of which `resident` fit a multiprocessor:
        one reads while another writes. One block without clusters (before sm_90); None for longer rows."""
        clusters = (1, 2, 4, 8) if int(self.device.arch.removeprefix("sm_")) >= 90 else (1,)
        for room in (self.device.shared // resident, self.device.shared):
            for blocks in clusters:
                part = ceil(columns, blocks) * self.item + 2 * VECTOR_BYTES  # its first and last access may be cut
                taken = rows * ceil(part, VECTOR_BYTES) * VECTOR_BYTES
                if taken + SYSTEM_SHARED_BYTES <= room:
                    return SharedRow(blocks, taken)
        return None

    def scratch(self, count: int, item: int = 4) -> Argument:
        """Uninitialised memory for `count` elements of `item` bytes, for this call's launches alone."""
        self.scratches.append(max(count, 1) * item)
        return Argument(self.values + len(self.scratches) - 1)

    def panels(self, tensor: Argument, matrices: int, rows: int, columns: int, copied: int) -> Panels:
        """The tensor as an argument that is a `TensorMap` in the kernel; see `Panels`."""
        return Panels(tensor.place, tensor.misaligned, matrices, rows, columns, copied)

    def leave_to(self, language: str) -> None:
        """Let the version of the operation in another language run calls like this one."""
        self.instead = language

    def sum_columns(
        self,
        kernel: str,
        per_block: tuple[int, int],
        tensors: tuple[Argument, ...],
        sums: Argument,
        N: int,
        M: int,
        *sizes: int,
        add: int = 0,
    ) -> None:
        """Sums over N rows of M columns by a kernel of `sum_columns` (rows.cuh), on as many parts of the rows as fill
        the GPU, and then of the parts into `sums`. `per_block`: columns of a block, and rows of a warp at once."""
        columns, rows = per_block
        tiles = ceil(M, columns)
        blocks = SUM_BLOCKS * self.device.multiprocessors
        parts = max(1, min(ceil(N, SUM_WARPS * rows), ceil(blocks, max(tiles, 1))))
        memory = self.scratch(parts * M)
        self.launch(kernel, (tiles, parts), 32 * SUM_WARPS, *tensors, memory, N, M, *sizes)
        self.launch("bias_gradient_sum<T>", ceil(M, 32), 1024, memory, sums, parts, M, add)

    def launch(
        self,
        kernel: str,
        grid: int | tuple[int, int] | tuple[int, int, int],
        block: int,
        *arguments: Argument | int,
        shared: int = 0,
        early: bool = False,
    ) -> None:
        """Launch `kernel`, a name expression such as `f<T, 4>`. Nothing is launched when the grid is empty.

        `early`: as in `HostLaunch`, where the caller allows it (`perfkit.kernels.overlapping`).
        """
        sizes = (grid, 1, 1) if isinstance(grid, int) else (*grid, 1, 1)[:3]
        if 0 not in sizes:
            self.steps.append(HostLaunch(kernel, (sizes[0], sizes[1], sizes[2]), block, shared, arguments, early))


HostFunction = Callable[..., None]


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def record(
    function: HostFunction,
    device: GpuLimits,
    item: int,
    misaligned: Sequence[int],
    scalars: Sequence[int | float],
    block: int | None = None,
) -> Host:
    """Run `function` for tensors of these misalignments and these scalars; `block` replaces its default."""
    tensors = [Argument(place, offset) for place, offset in enumerate(misaligned)]
    numbers: list[Argument | int] = []
    place = len(tensors)
    for scalar in scalars:
        if isinstance(scalar, float):
            numbers.append(Argument(place))
            place += 1
        else:
            numbers.append(int(scalar))
    host = Host(device, item, place)
    keywords = {} if block is None else {"block": block}
    function(host, *tensors, *numbers, **keywords)
    return host
