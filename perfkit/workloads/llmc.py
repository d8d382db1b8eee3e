"""llm.c's checkpoint and token files: little endian, a header of 256 int32, then the body.

    checkpoint   [0] 20240326, [1] version, [2] context, [3] V, [4] layers, [5] heads, [6] C, [7] Vp; then the weights:
                 wte (Vp, C), wpe (T, C), each block weight for all layers at once, ln_f
    token data   [0] 20240520, [1] 1, [2] number of tokens; then uint16 tokens

Checkpoint versions: 3 is fp32, 5 is bf16, 1 is fp32 without a padded vocabulary (Vp). Older token data is raw int32.

Legend: V vocabulary, Vp vocabulary padded to a multiple of 128, C channels, T context.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from perfkit.errors import InputError, RunFailed
from perfkit.workloads.checkpoints import Checkpoint

CHECKPOINT, DEBUG_STATE, TOKENIZER, TOKENS, EVALUATION = 20240326, 20240327, 20240328, 20240520, 20240522
_KINDS = {
    CHECKPOINT: "an llm.c checkpoint",
    DEBUG_STATE: "an llm.c debug state",
    TOKENIZER: "an llm.c tokenizer",
    TOKENS: "llm.c token data",
    EVALUATION: "llm.c evaluation data",
}
_HEADER_BYTES = 1024
_FP32, _BF16, _UNPADDED = 3, 5, 1
_FIELDS = ("context", "vocabulary", "layers", "heads", "channels")
_PADDING = 128

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


def kind_of(path: Path) -> str:
    """What the header's magic number says that `path` is, such as "llm.c token data"; "" for anything else."""
    with path.open("rb") as file:
        head = file.read(4)
    return _KINDS.get(int.from_bytes(head, "little"), "") if len(head) == 4 else ""


def layout(dimensions: Mapping[str, int], rows: int) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """The checkpoint's arrays in order: the parameters it holds (one a layer), and the shape of each.

    `rows` is the height of wte: Vp, or V in version 1.
    """
    c, layers = dimensions["channels"], range(dimensions["layers"])
    blocks = [
        (tuple(f"transformer.h.{layer}.{name}" for layer in layers), tuple(c * n for n in shape))
        for name, shape in _BLOCK
    ]
    return [
        (("transformer.wte.weight",), (rows, c)),
        (("transformer.wpe.weight",), (dimensions["context"], c)),
        *blocks,
        (("transformer.ln_f.weight",), (c,)),
        (("transformer.ln_f.bias",), (c,)),
    ]


def padded(vocabulary: int) -> int:
    """Vp: the vocabulary rounded up to a multiple of 128."""
    return -(-vocabulary // _PADDING) * _PADDING


def open_checkpoint(path: Path) -> Checkpoint:
    """The weights of an llm.c checkpoint, fp32 arrays with wte cut to V rows.

    Raises `InputError` when the file is something else, of an unknown version, damaged, or truncated.
    """
    header = _header(path, CHECKPOINT, "an llm.c checkpoint")
    version = int(header[1])
    if version not in (_FP32, _BF16, _UNPADDED):
        raise InputError(
            f"{path}: version {version} of llm.c's checkpoint is unknown.", "Known: 1 and 3 (fp32), 5 (bf16)."
        )
    dimensions = {name: int(header[2 + i]) for i, name in enumerate(_FIELDS)}
    rows = dimensions["vocabulary"] if version == _UNPADDED else int(header[7])
    if min(dimensions.values()) < 1 or rows < dimensions["vocabulary"]:
        raise InputError(f"{path} is damaged: its header gives impossible dimensions.")
    arrays = layout(dimensions, rows)
    numbers = sum(len(names) * math.prod(shape) for names, shape in arrays)
    _check_size(path, _HEADER_BYTES + numbers * (2 if version == _BF16 else 4))

    def tensors() -> Iterator[tuple[str, np.ndarray]]:
        data = np.memmap(path, dtype="<u2" if version == _BF16 else "<f4", mode="r", offset=_HEADER_BYTES)
        at = 0
        for names, shape in arrays:
            for name in names:
                values = data[at : at + math.prod(shape)].reshape(shape)
                at += values.size
                if name == "transformer.wte.weight":
                    values = values[: dimensions["vocabulary"]]
                yield name, (_from_bf16(values) if version == _BF16 else np.array(values))

    return Checkpoint(path, dimensions, tensors)


def write_checkpoint(
    path: Path, dimensions: Mapping[str, int], weights: Mapping[str, np.ndarray], bf16: bool = False
) -> None:
    """Write `weights` (fp32, by parameter name) as a checkpoint of version 3, or 5 with `bf16`; whole or not at all.

    Raises `RunFailed` when the file cannot be written.
    """
    header = np.zeros(256, dtype="<i4")
    rows = padded(dimensions["vocabulary"])
    header[:8] = [CHECKPOINT, _BF16 if bf16 else _FP32, *(dimensions[name] for name in _FIELDS), rows]

    def body(file: BinaryIO) -> None:
        for names, shape in layout(dimensions, rows):
            for name in names:
                values = np.asarray(weights[name], dtype="<f4")
                missing = math.prod(shape) - values.size
                if missing and name == "transformer.wte.weight":
                    values = np.concatenate([values, np.zeros((rows - len(values), shape[1]), dtype="<f4")])
                assert values.shape == shape, f"{name}: {values.shape} where {shape} is expected"
                file.write((_to_bf16(values) if bf16 else np.ascontiguousarray(values)).tobytes())

    _write(path, header, body)


def read_tokens(path: Path, vocabulary: int) -> np.ndarray:
    """The tokens of an llm.c token file (mapped, not read): uint16 with a header, or older raw int32.

    Raises `InputError` when the file is something else, truncated, or holds a token ≥ `vocabulary`.
    """
    kind = kind_of(path)
    if kind == _KINDS[TOKENS]:
        header = _header(path, TOKENS, "llm.c token data")
        if header[1] != 1 or header[2] < 0:
            raise InputError(f"{path}: version {header[1]} of llm.c's token data is unknown.", "Known: 1 (uint16).")
        _check_size(path, _HEADER_BYTES + 2 * int(header[2]))
        tokens = _mapped(path, "<u2", _HEADER_BYTES)
    elif kind:
        raise InputError(f"{path} is {kind}, not token data.", "Give a token file, a text, or synthetic.")
    elif path.stat().st_size % 4:
        raise _no_token_file(path)
    else:
        tokens = _mapped(path, "<i4", 0)
        if tokens.size and (tokens.min() < 0 or tokens.max() >= 1 << 24):
            raise _no_token_file(path)  # no vocabulary is that large: these are other bytes
    if tokens.size and tokens.max() >= vocabulary:
        raise InputError(
            f"{path} holds the token {tokens.max()}, but the model's vocabulary has {vocabulary}.",
            "Use a preset with the vocabulary that the file was made with.",
        )
    return tokens


def write_tokens(path: Path, tokens: np.ndarray) -> None:
    """Write `tokens` (each below 65536) as token data of version 1. Raises `RunFailed` when it cannot be written."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = [TOKENS, 1, len(tokens)]
    _write(path, header, lambda file: file.write(np.asarray(tokens).astype("<u2").tobytes()))


def _no_token_file(path: Path) -> InputError:
    return InputError(
        f"{path} is no token file: it has neither llm.c's header ({TOKENS}) nor raw int32 tokens.",
        "Give an llm.c token file, a text file, or synthetic.",
    )


def _mapped(path: Path, dtype: str, offset: int) -> np.ndarray:
    if path.stat().st_size <= offset:  # an empty body cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset)


def _header(path: Path, magic: int, what: str) -> np.ndarray:
    with path.open("rb") as file:
        raw = file.read(_HEADER_BYTES)
    found = int.from_bytes(raw[:4], "little")
    if len(raw) >= 4 and found != magic:
        raise InputError(f"{path} is not {what}: its magic number is {found}, not {magic}.", _instead(found))
    if len(raw) < _HEADER_BYTES:
        raise InputError(f"{path} is not {what}: it is shorter than the header of {_HEADER_BYTES} bytes.")
    return np.frombuffer(raw, dtype="<i4")


def _instead(magic: int) -> str:
    return f"It is {_KINDS[magic]}." if magic in _KINDS else ""


def _check_size(path: Path, expected: int) -> None:
    size = path.stat().st_size
    if size != expected:
        what = "is truncated" if size < expected else "is too long"
        raise InputError(f"{path} {what}: its header promises {expected:,} bytes, it has {size:,}.")


def _from_bf16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32)


def _to_bf16(values: np.ndarray) -> np.ndarray:
    """Round fp32 to the nearest bf16, ties to even, as its upper 16 bits; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype("<u2")


def _write(path: Path, header: np.ndarray, body: Callable[[BinaryIO], object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(header.tobytes())
            body(file)
        temporary.replace(path)
    except OSError as error:
        raise RunFailed(f"{path} could not be written: {error.strerror}.", "Free space there.") from error
    finally:
        temporary.unlink(missing_ok=True)
