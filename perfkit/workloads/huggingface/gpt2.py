"""Hugging Face's GPT-2.

The four linear weights of a block are transposed there (its Conv1D), and parameters have the prefix `transformer.` or
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.errors import InputError
from perfkit.workloads.huggingface.files import check_computed, positive

if TYPE_CHECKING:
    import torch

_FIELDS = {
    "layers": "n_layer",
    "heads": "n_head",
    "channels": "n_embd",
    "vocabulary": "vocab_size",
    "context": "n_positions",
}
# Values that `workloads/gpt2.py` computes; a folder with another value is another model. Absent means the first.
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


def dimensions(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The dimensions that `config` gives. Raises `InputError` for what `workloads/gpt2.py` does not compute."""
    check_computed(config, _COMPUTED, path, "GPT-2")
    if config.get("n_inner") not in (None, 4 * config.get("n_embd", 0)):
        raise InputError(f"{path} asks for n_inner = {config['n_inner']}; perfkit's GPT-2 has 4 × n_embd.")
    return positive(config, _FIELDS, path)


def read(name: str, tensor: torch.Tensor, dimensions: Mapping[str, Any]) -> tuple[str, torch.Tensor] | None:
    """A saved tensor's name and value in the workload; None for one that it has no parameter for."""
    if name.endswith(_LEFT_OUT):
        return None
    name = name if name.startswith("transformer.") else f"transformer.{name}"
    return name, tensor.t() if name.endswith(_TRANSPOSED) else tensor


def config(dimensions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of config.json for a model with these dimensions."""
    computed = {name: values[0] for name, values in _COMPUTED.items()}
    sizes = {field: dimensions[name] for name, field in _FIELDS.items()}
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", **sizes, **computed}


def write(name: str, tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
    """A parameter's name and value as they are saved."""
    return name, tensor.t() if name.endswith(_TRANSPOSED) else tensor
