"""Weights in local Hugging Face folders, read and written: `config.json` and `model.safetensors`.

    files.py            the files of a folder
    gpt2.py, llama.py   what a kind of model is called there, and how its weights lie

Nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from perfkit.errors import InputError, UsageError
from perfkit.workloads.huggingface import files, gpt2, llama
from perfkit.workloads.weights import Checkpoint

if TYPE_CHECKING:
    import torch

    from perfkit.run_folder import Settings
    from perfkit.workloads.interface import Workload

# Each module has `dimensions(config, path)`, `read(name, tensor)`, `config(dimensions)` and `write(name, tensor)`.
KINDS: dict[str, ModuleType] = {"gpt2": gpt2, "llama": llama}


def open_folder(folder: Path, kind: str) -> Checkpoint:
    """The weights of the model of `kind` in `folder`, in the names of the workload.

    Raises `InputError` when it holds no such model, or one that perfkit does not compute, `Unavailable` when the
    package is missing that reads its files.
    """
    path = folder / files.CONFIG
    config = files.read_config(folder)
    if config.get("model_type") != kind:
        raise InputError(f"{folder} holds a model of type {config.get('model_type')}, not {kind}.")
    form = KINDS[kind]
    dimensions = form.dimensions(config, path)
    weights = files.weight_files(folder)

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in files.tensors(weights):
            found = form.read(name, tensor, dimensions)
            if found is not None:
                yield found

    return Checkpoint(folder, dimensions, tensors)


def export(workload: Workload, settings: Settings, folder: Path, overwrite: bool = False) -> list[Path]:
    """Write the model of `workload` as a folder that transformers reads; returns its files.

    Raises `UsageError` when files are in the way, and what `write_folder` raises.
    """
    existing = [path for path in (folder / files.CONFIG, folder / files.SAFETENSORS) if path.exists()]
    if existing and not overwrite:
        raise UsageError(f"{existing[0]} is already there.", "--overwrite replaces it, or choose another folder.")
    _form(workload.name)
    weights = dict(workload.build(settings).named_parameters())
    return write_folder(folder, workload.name, workload.dimensions(settings), weights)


def write_folder(
    folder: Path, kind: str, dimensions: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> list[Path]:
    """Write a model's `weights` by name as a folder that transformers reads; returns its files.

    Raises `UsageError` for a kind of model that has no such form, `Unavailable` without the package safetensors,
    `RunFailed` when a file cannot be written.
    """
    form = _form(kind)
    named = dict(form.write(name, tensor) for name, tensor in weights.items())
    return files.write(folder, json.dumps(form.config(dimensions), indent=2) + "\n", named)


def _form(kind: str) -> ModuleType:
    if kind not in KINDS:
        raise UsageError(f"perfkit writes no Hugging Face folder of {kind}.", f"It writes them of {', '.join(KINDS)}.")
    return KINDS[kind]
