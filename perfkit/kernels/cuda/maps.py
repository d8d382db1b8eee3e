"""Tensor maps, by which Hopper's copy engine finds tiles of a tensor, as the CUDA driver encodes them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from perfkit.errors import RunFailed

PANEL = 64  # columns that one copy brings: 128 bytes, the widest order of pieces that avoids bank conflicts
_ALIGNMENT = 64  # bytes, of the encoded map
# CU_TENSOR_MAP_…, of cuda.h: the type, no interleaving, the 128-byte swizzle, 128 bytes at a time to L2, 0 outside.
_BFLOAT16, _NO_INTERLEAVE, _SWIZZLE_128B, _L2_128B, _ZEROS = 9, 0, 3, 2, 0


class TensorMap(ctypes.Structure):
    """A tensor map, passed to a kernel by value."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@functools.lru_cache(maxsize=4096)  # a program's tensors come back to the same addresses
def tensor_map(address: int, matrices: int, rows: int, columns: int, copied: int) -> TensorMap:
    """The map of a contiguous tensor of bf16; see `host.Panels`. Raises `RunFailed` when the driver refuses."""
    memory = ctypes.create_string_buffer(ctypes.sizeof(TensorMap) + _ALIGNMENT)
    place = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
    sizes = (ctypes.c_uint64 * 3)(columns, rows, matrices)
    strides = (ctypes.c_uint64 * 2)(2 * columns, 2 * columns * rows)
    box, steps = (ctypes.c_uint32 * 3)(PANEL, copied, 1), (ctypes.c_uint32 * 3)(1, 1, 1)
    code = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(place), _BFLOAT16, 3, ctypes.c_void_p(address), sizes, strides, box, steps,
        _NO_INTERLEAVE, _SWIZZLE_128B, _L2_128B, _ZEROS,
    )  # fmt: skip
    if code:
        raise RunFailed(f"The CUDA driver cannot describe a tensor to the copy engine: error {code}.", "Report it.")
    return TensorMap.from_buffer_copy(ctypes.string_at(place, ctypes.sizeof(TensorMap)))


def launch(
    function: int,
    grid: tuple[int, int, int],
    block: int,
    shared: int,
    stream: int,
    arguments: Sequence[int | float | TensorMap],
) -> None:
    """Launch a kernel of which some parameters are tensor maps. Raises `RunFailed` when the driver refuses."""
    values = [_passed(a) for a in arguments]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    code = _driver().cuLaunchKernel(
        ctypes.c_void_p(function), *grid, block, 1, 1, shared, ctypes.c_void_p(stream), pointers, None
    )
    if code:
        raise RunFailed(f"The CUDA driver could not launch a kernel: error {code}.", "An earlier error shows here too.")


def _passed(argument: int | float | TensorMap) -> ctypes.c_double | ctypes.c_int64 | TensorMap:
    if isinstance(argument, TensorMap):
        return argument
    return ctypes.c_double(argument) if isinstance(argument, float) else ctypes.c_int64(argument)
