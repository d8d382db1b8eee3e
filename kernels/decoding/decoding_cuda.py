"""Launches of decoding.cu: B rows of C channels; version 1 where accesses of 16 bytes would not be aligned.

Letters as in decoding.py, by what each function computes. They record launches and raise nothing: the call raises
`RunFailed` where the source does not compile or a launch fails. A position is read on the GPU, where nothing checks
that it is below S, and R.
"""

from __future__ import annotations

from perfkit.kernels.cuda import VECTOR_BYTES, Argument, Host, ceil

# Accesses of a thread to each row of the weights, under way at once: 4, but 2 for one row of x whose outputs are not
# turned. On an H100 a token of Llama 1b takes 4 % less by these than by 8, and 1 to 3 % less than by 2 or 4 alone; with
# more rows of x 5 to 12 % less.
PACKS, OF_ONE_ROW = 4, 2
POSITIONS = 4  # that a thread of attention holds
THREADS = 256  # of a block of attention
MOST_SHARING = 8  # heads of queries of a head of keys, whose sums find registers

Tensors = tuple[Argument, ...]
Sizes = tuple[Argument | int, ...]


def decode_sum_v1(
    host: Host, x: Argument, weight: Argument, residual: Argument, y: Argument, B: int, C: int, M: int,
    *, block: int = 64,
) -> None:  # fmt: skip
    """y (B, M) = residual (B, M) + x (B, C)·weightᵀ, weight (M, C): a thread a pair of outputs."""
    _one_each(host, "decode_sum", B * ceil(M, 2), block, x, weight, residual, y, B, C, M)


def decode_sum_v2(
    host: Host, x: Argument, weight: Argument, residual: Argument, y: Argument, B: int, C: int, M: int
) -> None:
    """Version 1 by a block a pair of outputs, whose weights are under way before the kernel ahead has ended."""
    _staged(host, "decode_sum", ceil(M, 2), (x, weight), (x, weight, residual, y, B, C, M), B, C)


def decode_sum_v3(
    host: Host, x: Argument, weight: Argument, residual: Argument, y: Argument, B: int, C: int, M: int
) -> None:
    """Version 1 by tensor cores, eight pairs a block; version 2 where sizes or precision do not suit them."""
    if not _tiled(host, "decode_sum", ceil(M, 2), (x, weight), (x, weight, residual, y, B, C, M), B, C):
        decode_sum_v2(host, x, weight, residual, y, B, C, M)


def decode_head_v1(
    host: Host, x: Argument, norm: Argument, weight: Argument, y: Argument, B: int, C: int, M: int, eps: Argument,
    *, block: int = 64,
) -> None:  # fmt: skip
    """y (B, M) = the norm of x (B, C) by norm (C), times weightᵀ, weight (M, C): a thread a pair of outputs."""
    _one_each(host, "decode_head", B * ceil(M, 2), block, x, norm, weight, y, B, C, M, eps)


def decode_head_v2(
    host: Host, x: Argument, norm: Argument, weight: Argument, y: Argument, B: int, C: int, M: int, eps: Argument
) -> None:
    """Version 1 by a block a pair of outputs, whose weights are under way before the kernel ahead has ended."""
    _staged(host, "decode_head", ceil(M, 2), (x, norm, weight), (x, norm, weight, y, B, C, M, eps), B, C)


def decode_head_v3(
    host: Host, x: Argument, norm: Argument, weight: Argument, y: Argument, B: int, C: int, M: int, eps: Argument
) -> None:
    """Version 1 by tensor cores, eight pairs a block; version 2 where sizes or precision do not suit them."""
    if not _tiled(host, "decode_head", ceil(M, 2), (x, norm, weight), (x, norm, weight, y, B, C, M, eps), B, C):
        decode_head_v2(host, x, norm, weight, y, B, C, M, eps)


def decode_swiglu_v1(
    host: Host, x: Argument, norm: Argument, gate: Argument, up: Argument, g: Argument,
    B: int, C: int, F: int, eps: Argument, *, block: int = 64,
) -> None:  # fmt: skip
    """g (B, F) = silu(n·gateᵀ) · (n·upᵀ), n the norm of x (B, C) by norm (C); gate, up (F, C): a thread an output."""
    _one_each(host, "decode_swiglu", B * F, block, x, norm, gate, up, g, B, C, F, eps)


def decode_swiglu_v2(
    host: Host, x: Argument, norm: Argument, gate: Argument, up: Argument, g: Argument,
    B: int, C: int, F: int, eps: Argument,
) -> None:  # fmt: skip
    """Version 1 by a block an output, whose weights are under way before the kernel ahead has ended."""
    _staged(host, "decode_swiglu", F, (x, norm, gate, up), (x, norm, gate, up, g, B, C, F, eps), B, C)


def decode_swiglu_v3(
    host: Host, x: Argument, norm: Argument, gate: Argument, up: Argument, g: Argument,
    B: int, C: int, F: int, eps: Argument,
) -> None:  # fmt: skip
    """Version 1 by tensor cores, eight outputs a block; version 2 where sizes or precision do not suit them."""
    if not _tiled(host, "decode_swiglu", F, (x, norm, gate, up), (x, norm, gate, up, g, B, C, F, eps), B, C):
        decode_swiglu_v2(host, x, norm, gate, up, g, B, C, F, eps)


def decode_qkv_v1(
    host: Host, x: Argument, norm: Argument, wq: Argument, wk: Argument, wv: Argument, cos: Argument, sin: Argument,
    position: Argument, keys: Argument, values: Argument, q: Argument,
    B: int, C: int, NH: int, NKV: int, P: int, S: int, R: int, eps: Argument, *, block: int = 64,
) -> None:  # fmt: skip
    """q (B, NH·2P) of the norm of x (B, C), turned; key and value go to the cache: a thread a pair of outputs.

    wq (NH·2P, C), wk and wv (NKV·2P, C), cos and sin (R, P), keys and values (B, NKV, S, 2P), position (1).
    """
    given = x, norm, wq, wk, wv, cos, sin, position, keys, values, q, B, C, NH, NKV, P, S, eps
    _one_each(host, "decode_qkv", B * (NH + 2 * NKV) * P, block, *given)


def decode_qkv_v2(
    host: Host, x: Argument, norm: Argument, wq: Argument, wk: Argument, wv: Argument, cos: Argument, sin: Argument,
    position: Argument, keys: Argument, values: Argument, q: Argument,
    B: int, C: int, NH: int, NKV: int, P: int, S: int, R: int, eps: Argument,
) -> None:  # fmt: skip
    """Version 1 by a block a pair of outputs, whose weights are under way before the kernel ahead has ended."""
    given = x, norm, wq, wk, wv, cos, sin, position, keys, values, q, B, C, NH, NKV, P, S, eps
    _staged(host, "decode_qkv", (NH + 2 * NKV) * P, (x, norm, wq, wk, wv), given, B, C, PACKS)


def decode_qkv_v3(
    host: Host, x: Argument, norm: Argument, wq: Argument, wk: Argument, wv: Argument, cos: Argument, sin: Argument,
    position: Argument, keys: Argument, values: Argument, q: Argument,
    B: int, C: int, NH: int, NKV: int, P: int, S: int, R: int, eps: Argument,
) -> None:  # fmt: skip
    """Version 1 by tensor cores, eight pairs a block; version 2 where sizes or precision do not suit them."""
    tensors = x, norm, wq, wk, wv, cos, sin, position, keys, values, q
    given = *tensors, B, C, NH, NKV, P, S, eps
    if not _tiled(host, "decode_qkv", (NH + 2 * NKV) * P, (x, norm, wq, wk, wv), given, B, C):
        decode_qkv_v2(host, *tensors, B, C, NH, NKV, P, S, R, eps)


def decode_attention_v1(
    host: Host, q: Argument, keys: Argument, values: Argument, position: Argument, y: Argument,
    B: int, NH: int, NKV: int, HS: int, S: int, scale: Argument, *, block: int = 64,
) -> None:  # fmt: skip
    """y (B, NH, HS) of q (B, NH, HS) and the cache up to `position` (1), below S: a thread an output.

    keys and values (B, NKV, S, HS); each of their heads serves NH / NKV heads of q.
    """
    _one_each(host, "decode_attention", B * NH * HS, block, q, keys, values, position, y, B, NH, NKV, HS, S, scale)


def decode_attention_v2(
    host: Host, q: Argument, keys: Argument, values: Argument, position: Argument, y: Argument,
    B: int, NH: int, NKV: int, HS: int, S: int, scale: Argument,
) -> None:  # fmt: skip
    """Version 1, a block some positions of a head of keys for all heads of q on it; a second kernel joins them.

    Version 1 where a head is not 1 to 32 accesses of 16 bytes, or too many heads of q share one of keys.
    """
    width, group = VECTOR_BYTES // host.item, NH // NKV
    lanes = HS // width
    if host.width(HS, q, keys, values) < width or lanes not in (1, 2, 4, 8, 16, 32) or group > MOST_SHARING:
        return decode_attention_v1(host, q, keys, values, position, y, B, NH, NKV, HS, S, scale)
    count = THREADS // lanes * POSITIONS
    blocks = ceil(S, count)
    parts = host.scratch(B * NH * blocks * (HS + 2)) if blocks > 1 else y
    kernel = f"decode_attention_v2<T, {width}, {lanes}, {group}, {POSITIONS}, {THREADS}, {str(blocks > 1).lower()}>"
    host.launch(kernel, (blocks, NKV, B), THREADS, q, keys, values, position, y, parts, NKV, S, scale, early=True)
    if blocks > 1:
        kernel = f"decode_attention_joined<T, {count}>"
        host.launch(kernel, B * NH, min(HS, 1024), parts, position, y, HS, blocks, early=True)


def decode_token_v1(host: Host, logits: Argument, token: Argument, B: int, M: int, *, block: int = 64) -> None:
    """token (B, 1), int64, the place of each row's largest logit, logits (B, M): a thread a row."""
    _one_each(host, "decode_token", B, block, logits, token, B, M)


def decode_token_v2(host: Host, logits: Argument, token: Argument, B: int, M: int) -> None:
    """Version 1 by blocks that each take a part of a row, and a second kernel that joins them."""
    width = host.width(M, logits)
    parts = max(1, min(host.device.multiprocessors, ceil(M, THREADS * width)))
    best = host.scratch(B * parts, item=8)
    host.launch(f"decode_token_v2<T, {width}, {THREADS}>", (parts, B), THREADS, logits, best, M, early=True)
    host.launch(f"decode_token_joined<{THREADS}>", B, THREADS, best, token, parts, early=True)


def _one_each(host: Host, name: str, threads: int, block: int, *arguments: Argument | int) -> None:
    host.launch(f"{name}_v1<T>", ceil(threads, block), block, *arguments)


def _staged(
    host: Host, name: str, pairs: int, read: Tensors, arguments: Sizes, B: int, C: int, of_one_row: int = OF_ONE_ROW
) -> None:
    """Launch one block for each pair of outputs, with as many threads as a row has accesses, up to a limit."""
    width, most = VECTOR_BYTES // host.item, of_one_row if B == 1 else PACKS
    if host.width(C, *read) < width:
        return _one_each(host, name, B * pairs, 64, *arguments)
    threads = next((t for t in (32, 64, 128) if ceil(C, t * width) <= most), 256)
    packs, rows = min(most, ceil(C, threads * width)), 1 if B == 1 else 2 if B == 2 else 4
    shared = 2 * packs * threads * VECTOR_BYTES
    kernel = f"{name}_v2<T, {width}, {rows}, {packs}, {threads}>"
    host.launch(kernel, (pairs, ceil(B, rows)), threads, *arguments, shared=shared, early=True)


def _tiled(host: Host, name: str, pairs: int, read: Tensors, arguments: Sizes, B: int, C: int) -> bool:
    """A block eight pairs of outputs by tensor cores; False where they cannot."""
    tile = host.tile(B, C, *read)
    if tile is None:
        return False
    kernel, grid = f"{name}_v3<{tile.parameters}>", (ceil(2 * pairs, tile.OUTPUTS), ceil(B, tile.rows))
    host.launch(kernel, grid, 32 * tile.warps, *arguments, shared=tile.shared, early=True)
    return True
