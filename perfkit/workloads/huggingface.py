"""GPT-2 weights from a local Hugging Face folder: `config.json` beside `model.safetensors` or `pytorch_model.bin`.

Hugging Face keeps the four linear weights of a block transposed (its Conv1D), and names the parameters with or without
the prefix `transformer.`. Nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.errors import InputError, Unavailable
from perfkit.workloads.checkpoints import Checkpoint

if TYPE_CHECKING:
    import torch

_FIELDS = {
    "layers": "n_layer",
    "heads": "n_head",
    "channels": "n_embd",
    "vocabulary": "vocab_size",
    "context": "n_positions",
}
# What `workloads/gpt2.py` computes; a folder that asks for something else is another model. Absent means the first.
_COMPUTED: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "tie_word_embeddings": (True,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}
_TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
# Not parameters: the causal masks that older versions saved, and the tied head.
_LEFT_OUT = (".attn.bias", ".attn.masked_bias", "lm_head.weight")
_SAFETENSORS, _PICKLED = "model.safetensors", "pytorch_model.bin"


def open_folder(folder: Path) -> Checkpoint:
    """The weights of the GPT-2 in `folder`.

    Raises `InputError` when it holds no GPT-2 that perfkit can compute, `Unavailable` when the package is missing that
    reads its files.
    """
    config = _config(folder)
    dimensions = {name: config.get(field, 0) for name, field in _FIELDS.items()}
    if not all(isinstance(value, int) and value > 0 for value in dimensions.values()):
        raise InputError(f"{folder / 'config.json'} does not give all of {', '.join(_FIELDS.values())}.")
    files = _files(folder)
    return Checkpoint(folder, dimensions, lambda: _tensors(files))


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{folder} is no Hugging Face folder: it has no config.json.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged: it is not JSON.") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} is damaged: it holds no settings.")
    kind = config.get("model_type")
    if kind != "gpt2":
        raise InputError(f"{folder} holds a model of type {kind}, not gpt2.")
    for name, computed in _COMPUTED.items():
        if config.get(name, computed[0]) not in computed:
            raise InputError(f"{path} asks for {name} = {config[name]}; perfkit's GPT-2 has {computed[0]}.")
    if config.get("n_inner") not in (None, 4 * config.get("n_embd", 0)):
        raise InputError(f"{path} asks for n_inner = {config['n_inner']}; perfkit's GPT-2 has 4 × n_embd.")
    return config


def _files(folder: Path) -> list[Path]:
    """The weight files, one, or several that an index lists."""
    for name in (_SAFETENSORS, _PICKLED):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return [folder / name for name in _listed(index)]
    raise InputError(f"{folder} has a config.json but neither {_SAFETENSORS} nor {_PICKLED}.")


def _listed(index: Path) -> list[str]:
    """The file names in an index of several weight files."""
    try:
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{index} is damaged: it lists no weight files.") from error
    return sorted(Path(str(file)).name for file in files)


def _tensors(files: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    for path in files:
        for name, tensor in _safe(path) if path.suffix == ".safetensors" else _pickled(path):
            if name.endswith(_LEFT_OUT):
                continue
            name = name if name.startswith("transformer.") else f"transformer.{name}"
            yield name, tensor.t() if name.endswith(_TRANSPOSED) else tensor


def _safe(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise Unavailable(
            f"{path} needs the package safetensors, which is not installed.", "Install it: pip install 'perfkit[data]'."
        ) from error
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - the file is no mapping
                yield name, file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged or no safetensors file: {error}.") from error


def _pickled(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    import pickle

    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"{path} is damaged, or holds more than weights.", "Save it again as safetensors.") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise InputError(f"{path} holds something other than weights by name.", "Save it again as safetensors.")
    yield from state.items()
