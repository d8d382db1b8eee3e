"""Hugging Face's Llama, with the names of the workload's own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.errors import InputError
from perfkit.workloads.huggingface.files import check_computed, positive

if TYPE_CHECKING:
    import torch

_FIELDS = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "channels": "hidden_size",
    "width": "intermediate_size",
    "vocabulary": "vocab_size",
    "context": "max_position_embeddings",
}
# Values that `workloads/llama.py` computes. Absent means the first.
_COMPUTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
}
# Llama 3.1's frequencies, except their factor.
_STRETCHED = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_PLAIN_THETA = 10000.0  # transformers' own where a config says nothing
_HEAD, _FREQUENCIES = "lm_head.weight", "rotary_emb.inv_freq"


def dimensions(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The dimensions that `config` gives. Raises `InputError` for what `workloads/llama.py` does not compute."""
    check_computed(config, _COMPUTED, path, "Llama")
    sizes = positive(config, _FIELDS, path)
    head_size = config.get("head_dim") or sizes["channels"] // sizes["heads"]
    if head_size * sizes["heads"] != sizes["channels"]:
        raise InputError(f"{path} asks for head_dim = {head_size}; perfkit's Llama has hidden_size / heads.")
    theta, factor = _frequencies(config, path)
    return {
        "layers": sizes["layers"],
        "heads": sizes["heads"],
        "kv_heads": config.get("num_key_value_heads") or sizes["heads"],
        **{name: sizes[name] for name in ("channels", "width", "vocabulary", "context")},
        "rope_theta": theta,
        "rope_factor": factor,
        "norm_eps": float(config.get("rms_norm_eps", 1e-6)),
        "head": "tied" if config.get("tie_word_embeddings") else "untied",
    }


def _frequencies(config: Mapping[str, Any], path: Path) -> tuple[float, float]:
    """Base and factor of the rotary frequencies: in `rope_parameters`, or in `rope_theta` and `rope_scaling`."""
    asked = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(asked.get("rope_theta") or config.get("rope_theta") or _PLAIN_THETA)
    kind = asked.get("rope_type") or asked.get("type") or "default"
    if kind == "default":
        return theta, 1.0
    if kind != "llama3" or any(asked.get(name, value) != value for name, value in _STRETCHED.items()):
        raise InputError(
            f"{path} asks for rotary frequencies of type {kind} that perfkit's Llama does not compute.",
            "It computes the plain ones, and Llama 3.1's over a first context of 8192.",
        )
    return theta, float(asked["factor"])


def read(name: str, tensor: torch.Tensor, dimensions: Mapping[str, Any]) -> tuple[str, torch.Tensor] | None:
    """A saved tensor's name and value in the workload; None for one that it has no parameter for."""
    if name.endswith(_FREQUENCIES) or (name == _HEAD and dimensions["head"] == "tied"):
        return None
    return name, tensor


def config(dimensions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of config.json for a model with these dimensions."""
    frequencies: dict[str, Any] = {"rope_type": "default"}
    if dimensions["rope_factor"] != 1.0:
        frequencies = {"rope_type": "llama3", "factor": dimensions["rope_factor"], **_STRETCHED}
    sizes = {field: dimensions[name] for name, field in _FIELDS.items()}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **sizes,
        "num_key_value_heads": dimensions["kv_heads"],
        "head_dim": dimensions["channels"] // dimensions["heads"],
        "rms_norm_eps": dimensions["norm_eps"],
        "tie_word_embeddings": dimensions["head"] == "tied",
        # The newer and the older way to say the same: transformers reads one of them, by its version.
        "rope_parameters": {"rope_theta": dimensions["rope_theta"], **frequencies},
        "rope_theta": dimensions["rope_theta"],
        "rope_scaling": frequencies if dimensions["rope_factor"] != 1.0 else None,
        **{name: values[0] for name, values in _COMPUTED.items()},
    }


def write(name: str, tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
    """A parameter's name and value as they are saved."""
    return name, tensor
