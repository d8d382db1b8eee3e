"""A model's weights from files: a local Hugging Face folder, or for GPT-2 an llm.c checkpoint, in the workloads' names.

Each reader gives a `Checkpoint`: the model's dimensions, known before any weight is read, and the weights one after the
other, so that no second copy of the model is ever held.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.errors import InputError
from perfkit.workloads.weights import Checkpoint

if TYPE_CHECKING:
    import torch


def open_checkpoint(path: str | Path, kind: str = "gpt2") -> Checkpoint:
    """Open the weights at `path` of a model of `kind` (`gpt2`, `llama`).

    Raises `InputError` when it does not have a form of such models, and what the readers raise.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        from perfkit.workloads import huggingface

        return huggingface.open_folder(path, kind)
    if not path.exists():
        raise InputError(
            f"--weights {path}: no such file or folder.",
            "Give random, a Hugging Face folder, or an llm.c checkpoint (.bin).",
        )
    if kind != "gpt2":
        raise InputError(f"--weights {path} is a file, and no file holds a {kind}.", "Give a Hugging Face folder.")
    from perfkit.workloads import llmc

    return llmc.open_checkpoint(path)


def load_weights(model: torch.nn.Module, checkpoint: Checkpoint) -> None:
    """Copy the weights into `model`, converted to its precision.

    Raises `InputError` when a weight is missing, unknown to the model, or of another shape.
    """
    import torch

    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in checkpoint.tensors():
            tensor = torch.as_tensor(value)
            target = parameters.pop(name, None)
            if target is None:
                raise InputError(f"{checkpoint.path} holds a weight that the model does not have: {name}.")
            if target.shape != tensor.shape:
                found, expected = tuple(tensor.shape), tuple(target.shape)
                raise InputError(f"{checkpoint.path}: {name} has shape {found} where {expected} is expected.")
            target.copy_(tensor)
    if parameters:
        raise InputError(f"{checkpoint.path} lacks the weight {next(iter(parameters))}.")


def check_dimensions(checkpoint: Checkpoint, presets: Mapping[str, Mapping[str, Any]], preset: str) -> None:
    """Raise `InputError` unless the file's dimensions are those of `preset`, naming both and the preset that fits."""
    found = dict(checkpoint.dimensions)
    of_presets = {name: {key: dimensions[key] for key in found} for name, dimensions in presets.items()}
    if found == of_presets[preset]:
        return
    fitting = [name for name, dimensions in of_presets.items() if dimensions == found]
    raise InputError(
        f"{checkpoint.path} holds a model of {_in_words(found)}, but the preset {preset} has "
        f"{_in_words(of_presets[preset])}.",
        f"Use --preset {fitting[0]}." if fitting else "No preset has these sizes.",
    )


def _in_words(dimensions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in dimensions.items())
