"""Launches of `flash_attention.cu`: Hopper alone, bf16, heads of 64 and 128; version 1, in Triton, runs all else."""

from perfkit.kernels.cuda import Argument, Host, ceil

KEYS = 128  # of a block, forward and backward
PANEL = 1024  # bytes: panels of shared memory begin at its multiples
# Bytes that L2 holds of the heads that come together: keys and values forward, queries and what is summed backward.
KEPT, SUMMED = 16 << 20, 32 << 20


def _suits(host: Host, size: int, *tensors: Argument) -> bool:
    """Return whether these kernels can run the call; else it is left to Triton."""
    if host.device.arch == "sm_90" and size in (64, 128) and not any(t.misaligned for t in tensors):
        return True
    host.leave_to("triton")
    return False


def flash_attention_forward_v2(
    host: Host, q: Argument, k: Argument, v: Argument, y: Argument, lse: Argument,
    matrices: int, group: int, time: int, size: int, scale: Argument,
) -> None:  # fmt: skip
    """Launch `flash_attention_forward` version 2: the softmax of some queries while products run."""
    if not _suits(host, size, q, k, v, y):
        return
    groups = 3 if size == 64 else 2
    queries, stages, heads = 64 * groups, 2, matrices // group
    shared = PANEL + 2 * size * (queries + 2 * stages * KEYS)
    tiles = host.panels(q, matrices, time, size, queries), *(host.panels(x, heads, time, size, KEYS) for x in (k, v))
    blocks = matrices * ceil(time, queries)
    grid = min(blocks, host.device.multiprocessors)
    counter, section, counted = host.scratch(1), matrices, "false"
    if size > 64:  # sections of heads, as multiprocessors get free; narrower heads read too little for that to pay
        of_head, counted = max(4 * time * size, 1), "true"
        section = matrices if heads * of_head <= 2 * KEPT else max(8, group * (KEPT // of_head))
        host.launch("flash_forward_begin", min(blocks, 1), 32, counter)
    host.launch(
        f"flash_forward<{size}, {groups}, {stages}, {counted}>", grid, 128 * (groups + 1),
        *tiles, y, lse, counter, matrices, group, time, section, scale, shared=shared,
    )  # fmt: skip


def flash_attention_backward_v2(
    host: Host, dy: Argument, q: Argument, k: Argument, v: Argument, y: Argument, lse: Argument,
    dq: Argument, dk: Argument, dv: Argument, matrices: int, group: int, time: int, size: int, scale: Argument,
) -> None:  # fmt: skip
    """Launch `flash_attention_backward` version 2: dk and dv of a tile of keys in registers, dq added up in memory."""
    if not _suits(host, size, dy, q, k, v, y, dq, dk, dv):
        return
    queries, stages = (128, 2) if size == 64 else (64, 3)
    heads, padded = matrices // group, ceil(time, KEYS) * KEYS
    rows, section = matrices * padded, max(1, SUMMED // max(8 * group * time * size, 1))
    shared = PANEL + 2 * size * (2 * KEYS + 2 * stages * queries) + 4 * KEYS * queries
    sums, lse2, delta = host.scratch(rows * size), host.scratch(rows), host.scratch(rows)
    tiles = (
        *(host.panels(x, matrices, time, size, queries) for x in (q, dy)),
        *(host.panels(x, heads, time, size, KEYS) for x in (k, v)),
    )
    host.launch(
        f"flash_backward_begin<{size}>", ceil(rows * size, 8 * 256), 256,
        dy, y, lse, lse2, delta, sums, rows, time, padded,
    )  # fmt: skip
    host.launch(
        f"flash_backward<{size}, {queries}, {stages}>", heads * padded // KEYS, 384,
        *tiles, lse2, delta, dk, dv, sums, heads, group, time, padded, section, scale, shared=shared,
    )  # fmt: skip
    host.launch(f"flash_backward_end<{size}>", rows // 64 * (size // 64), 128, sums, dq, time, padded, scale)
