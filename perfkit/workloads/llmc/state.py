"""llm.c's debug state: one batch, and what a GPT-2 made of it, for another implementation to be compared with.

    header  [0] 20240327, [1] version, [2] B, [3] T
    body    x int32 (B, T), y int32 (B, T), logits fp32 (B, T, V), loss fp32, gradients fp32 in the checkpoint's order

Version 2 pads the gradient of wte to Vp rows with zeros, version 1 has V rows. The file does not hold the model's
dimensions: they are those of the checkpoint that it belongs to.

Legend: B batch, T time, V vocabulary, Vp vocabulary padded to a multiple of 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from perfkit.errors import InputError
from perfkit.workloads.llmc import header as files
from perfkit.workloads.llmc.checkpoint import count, layout, padded, split, write_arrays

_UNPADDED, _PADDED = 1, 2
_VERSIONS = {_UNPADDED: "unpadded", _PADDED: "padded vocabulary"}


@dataclass(frozen=True)
class DebugState:
    """Inputs x and targets y (B, T), logits (B, T, V), their mean loss, and each parameter's gradient by its name."""

    x: np.ndarray
    y: np.ndarray
    logits: np.ndarray
    loss: float
    gradients: Mapping[str, np.ndarray]


def read_debug_state(path: Path, dimensions: Mapping[str, int]) -> DebugState:
    """The debug state in `path`, of a model of these dimensions; large arrays are mapped, not read.

    Raises `InputError` when the file is something else, of an unknown version, or does not fit the dimensions.
    """
    header = files.read_header(path, files.DEBUG_STATE)
    version = files.check_version(path, header, _VERSIONS)
    batch, time = int(header[2]), int(header[3])
    if min(batch, time) < 1:
        raise InputError(f"{path} is damaged: its header gives a batch of {batch} × {time}.")
    vocabulary = dimensions["vocabulary"]
    arrays = layout(dimensions, vocabulary if version == _UNPADDED else padded(vocabulary))
    tokens, logits = batch * time, batch * time * vocabulary
    expected = files.BYTES + 4 * (2 * tokens + logits + 1 + count(arrays))
    if path.stat().st_size != expected:
        raise InputError(
            f"{path} does not fit the model: with its batch of {batch} × {time} it would have {expected:,} bytes, and "
            f"it has {path.stat().st_size:,}.",
            "Give the checkpoint that it was written with; or the file is damaged.",
        )
    whole = files.mapped(path, "<i4", files.BYTES)
    numbers = whole.view("<f4")
    at = 2 * tokens
    return DebugState(
        x=whole[:tokens].reshape(batch, time),
        y=whole[tokens:at].reshape(batch, time),
        logits=numbers[at : at + logits].reshape(batch, time, vocabulary),
        loss=float(numbers[at + logits]),
        gradients=dict(split(numbers[at + logits + 1 :], arrays, vocabulary)),
    )


def write_debug_state(path: Path, dimensions: Mapping[str, int], state: DebugState) -> None:
    """Write a debug state of version 2, whole or not at all. Raises `RunFailed` when the file cannot be written."""
    batch, time = state.x.shape
    assert state.y.shape == (batch, time) and state.logits.shape == (batch, time, dimensions["vocabulary"])

    def body(file: BinaryIO) -> None:
        for tokens in (state.x, state.y):
            file.write(np.asarray(tokens).astype("<i4").tobytes())
        file.write(np.ascontiguousarray(state.logits, dtype="<f4").tobytes())
        file.write(np.array([state.loss], dtype="<f4").tobytes())
        write_arrays(file, layout(dimensions, padded(dimensions["vocabulary"])), state.gradients)

    files.write(path, files.make_header(files.DEBUG_STATE, _PADDED, batch, time), body)
