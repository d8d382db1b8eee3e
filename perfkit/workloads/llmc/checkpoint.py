"""llm.c's checkpoint: a GPT-2's weights.

    header  [0] 20240326, [1] version, [2] context, [3] V, [4] layers, [5] heads, [6] C, [7] Vp
    body    wte (Vp, C), wpe (T, C), each block weight for all layers at once, ln_f

Versions: 3 is fp32, 5 is bf16, 1 is fp32 without a padded vocabulary (Vp).

Legend: V vocabulary, Vp vocabulary padded to a multiple of 128, C channels, T context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from perfkit.errors import InputError
from perfkit.workloads.llmc import header as files
from perfkit.workloads.weights import Checkpoint

FP32, BF16, UNPADDED = 3, 5, 1
_VERSIONS = {UNPADDED: "fp32, unpadded", FP32: "fp32", BF16: "bf16"}
# Dimensions that two interchangeable GPT-2 models share, as presets name them; then their order in the header.
DIMENSIONS = ("layers", "heads", "channels", "vocabulary", "context")
_FIELDS = ("context", "vocabulary", "layers", "heads", "channels")
_PADDING = 128
WTE = "transformer.wte.weight"

# The weights of a block in the checkpoint's order, and their shapes in units of C.
_BLOCK: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("ln_1.weight", (1,)),
    ("ln_1.bias", (1,)),
    ("attn.c_attn.weight", (3, 1)),
    ("attn.c_attn.bias", (3,)),
    ("attn.c_proj.weight", (1, 1)),
    ("attn.c_proj.bias", (1,)),
    ("ln_2.weight", (1,)),
    ("ln_2.bias", (1,)),
    ("mlp.c_fc.weight", (4, 1)),
    ("mlp.c_fc.bias", (4,)),
    ("mlp.c_proj.weight", (1, 4)),
    ("mlp.c_proj.bias", (1,)),
)


def layout(dimensions: Mapping[str, int], rows: int) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """The checkpoint's 16 arrays in order: the parameters it holds (one a layer), and the shape of each.

    `rows` is the height of wte: Vp, or V in version 1.
    """
    c, layers = dimensions["channels"], range(dimensions["layers"])
    blocks = [
        (tuple(f"transformer.h.{layer}.{name}" for layer in layers), tuple(c * n for n in shape))
        for name, shape in _BLOCK
    ]
    return [
        ((WTE,), (rows, c)),
        (("transformer.wpe.weight",), (dimensions["context"], c)),
        *blocks,
        (("transformer.ln_f.weight",), (c,)),
        (("transformer.ln_f.bias",), (c,)),
    ]


def padded(vocabulary: int) -> int:
    """Vp: the vocabulary rounded up to a multiple of 128."""
    return -(-vocabulary // _PADDING) * _PADDING


def count(arrays: list[tuple[tuple[str, ...], tuple[int, ...]]]) -> int:
    """Return the number of elements of all arrays of a `layout`."""
    return sum(len(names) * math.prod(shape) for names, shape in arrays)


def open_checkpoint(path: Path) -> Checkpoint:
    """The weights of an llm.c checkpoint, fp32 arrays with wte cut to V rows.

    Raises `InputError` when the file is something else, of an unknown version, damaged, or truncated.
    """
    header = files.read_header(path, files.CHECKPOINT)
    version = files.check_version(path, header, _VERSIONS)
    given = {name: int(header[2 + i]) for i, name in enumerate(_FIELDS)}
    dimensions = {name: given[name] for name in DIMENSIONS}
    rows = dimensions["vocabulary"] if version == UNPADDED else int(header[7])
    if min(dimensions.values()) < 1 or rows < dimensions["vocabulary"]:
        raise InputError(f"{path} is damaged: its header gives impossible dimensions.")
    arrays = layout(dimensions, rows)
    files.check_size(path, files.BYTES + count(arrays) * (2 if version == BF16 else 4))

    def tensors() -> Iterator[tuple[str, np.ndarray]]:
        data = files.mapped(path, "<u2" if version == BF16 else "<f4", files.BYTES)
        for name, values in split(data, arrays, dimensions["vocabulary"]):
            yield name, (_from_bf16(values) if version == BF16 else np.array(values))

    return Checkpoint(path, dimensions, tensors)


def write_checkpoint(
    path: Path, dimensions: Mapping[str, int], weights: Mapping[str, np.ndarray], bf16: bool = False
) -> None:
    """Write `weights` (fp32, by parameter name) as a checkpoint of version 3, or 5 with `bf16`; whole or not at all.

    Raises `RunFailed` when the file cannot be written.
    """
    rows = padded(dimensions["vocabulary"])
    version = BF16 if bf16 else FP32
    header = files.make_header(files.CHECKPOINT, version, *(dimensions[name] for name in _FIELDS), rows)
    files.write(path, header, lambda file: write_arrays(file, layout(dimensions, rows), weights, bf16))


def split(
    data: np.ndarray, arrays: list[tuple[tuple[str, ...], tuple[int, ...]]], vocabulary: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Each parameter's name and values in `data`, which lies as `arrays` says; wte without its padding."""
    at = 0
    for names, shape in arrays:
        for name in names:
            values = data[at : at + math.prod(shape)].reshape(shape)
            at += values.size
            yield name, values[:vocabulary] if name == WTE else values


def write_arrays(
    file: BinaryIO,
    arrays: list[tuple[tuple[str, ...], tuple[int, ...]]],
    values: Mapping[str, np.ndarray],
    bf16: bool = False,
) -> None:
    """Write parameters, or their gradients, as `arrays` says, wte padded with zeros."""
    for names, shape in arrays:
        for name in names:
            array = np.asarray(values[name], dtype="<f4")
            if name == WTE and len(array) < shape[0]:
                array = np.concatenate([array, np.zeros((shape[0] - len(array), shape[1]), dtype="<f4")])
            assert array.shape == shape, f"{name}: {array.shape} where {shape} is expected"
            file.write((_to_bf16(array) if bf16 else np.ascontiguousarray(array)).tobytes())


def _from_bf16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32)


def _to_bf16(values: np.ndarray) -> np.ndarray:
    """Round fp32 to the nearest bf16, ties to even, as its upper 16 bits; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype("<u2")
