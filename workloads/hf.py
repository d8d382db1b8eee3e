"""Any causal language model of transformers, from its config.json (random weights) or from saved weights.

    perfkit run hf --config FOLDER      the model that FOLDER/config.json describes, with random weights
    perfkit run hf --weights FOLDER     the model that was saved there, with its weights

Legend: B batch, T time (sequence length), V vocabulary.

    input_ids (B, T) → model → logits (B, T, V) → loss ()

The model is that of transformers, unchanged, and computes its loss itself. Nothing is downloaded. Dropout is switched
off, for every backend would draw other numbers.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from perfkit.errors import InputError, Unavailable, UsageError
from perfkit.workloads import Batch, Settings, Workload
from perfkit.workloads.language import length_of
from perfkit.workloads.tokens import TokenSource, open_tokens

# Kinds of models whose matrix FLOP `model_flop` counts right: dense layers, and softmax attention in every block.
COUNTED = ("gpt2", "llama", "qwen2", "qwen3", "mistral", "gemma")
# Frequencies of rotary embeddings: transformers computes and keeps them in fp32, whatever the model's precision.
PRECISE = ("inv_freq", "original_inv_freq")


class HuggingFace(Workload):
    """A model of transformers with AdamW on tokens of a text, of an llm.c file, or synthetic."""

    name = "hf"
    summary = "Any causal language model of transformers: --config FOLDER, or --weights FOLDER"
    presets = {"small": {"batch_size": 4, "sequence_length": 64}}
    variants = ("sdpa", "eager")  # how transformers computes attention
    passes = {
        "encoder": ("transformer.wte", "transformer.wpe", "model.embed_tokens", "model.rotary_emb"),
        "classifier": ("transformer.ln_f", "model.norm", "lm_head"),
    }
    sample_name = "tokens"
    takes = frozenset({"weights", "config", "data", "recompute", "optimizer"})

    _forward_flop = 0.0  # of one batch, known when the model is built

    def check(self, settings: Settings) -> None:
        """Raises `UsageError` without a model, `InputError` for an invalid one, `Unavailable` without transformers."""
        described(folder_of(settings))
        if importlib.util.find_spec("transformers") is None:
            raise Unavailable(
                "hf needs the package transformers, which is not installed.", "Install it: pip install 'perfkit[data]'."
            )

    def title(self, settings: Settings) -> str:
        """The kind of model, and the folder that describes it."""
        folder = folder_of(settings)
        return f"hf {described(folder)['model_type']} ({folder.resolve().name})"

    def build(self, settings: Settings) -> nn.Module:
        """The model in fp32 on the CPU, seeded or with its saved weights. Raises `UsageError` where T is too long."""
        config = self._config(settings)
        longest = getattr(config, "max_position_embeddings", None)
        if longest and length_of(settings) > longest:
            raise UsageError(
                f"--sequence-length {length_of(settings)} is more than the {longest} positions of the model."
            )
        model = _made(config, settings).float()
        if settings.recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if any(name in module._buffers for name in PRECISE):
                setattr(module, "_apply", functools.partial(_apply, module))  # noqa: B010
        self.layers = repeated(model)  # type: ignore[misc]  # another model has other layers
        self._forward_flop = forward_flop(model, config, settings.batch_size, length_of(settings))
        return model

    def batch(self, settings: Settings, step: int) -> Batch:
        """input_ids (B, T), and in training labels (B, T), the same: the model shifts them; int64."""
        rows, length = settings.batch_size, length_of(settings)
        window = self._tokens(settings).window(step, rows * length)
        tokens = torch.from_numpy(window)[:-1].view(rows, length)
        return {"input_ids": tokens, "labels": tokens} if settings.training else {"input_ids": tokens}

    def optimizer(self, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
        """AdamW, in the form that `settings.optimizer` names."""
        form: dict[str, Any] = {} if settings.optimizer == "default" else {settings.optimizer: True}
        return torch.optim.AdamW(model.parameters(), lr=1e-4, **form)

    def model_flop(self, settings: Settings) -> dict[str, float]:
        """Matrix FLOP of a step; backward twice forward. Nothing for kinds of models that are not in `COUNTED`."""
        forward = self._forward_flop * settings.grad_accumulation
        if not forward:
            return {}
        return {"forward": forward, "backward": 2 * forward} if settings.training else {"forward": forward}

    def describe_data(self, settings: Settings) -> str:
        """Return the source of the tokens."""
        return self._tokens(settings).description

    def _config(self, settings: Settings) -> Any:
        return _opened(str(folder_of(settings)))

    def _tokens(self, settings: Settings) -> TokenSource:
        vocabulary = int(self._config(settings).vocab_size)
        beside = str(folder_of(settings) / "config.json")
        return open_tokens(settings.data, vocabulary, settings.seed, beside)


def folder_of(settings: Settings) -> Path:
    """The folder with the model's config.json. Raises `UsageError` when the settings name none."""
    named = settings.config or (settings.weights if settings.weights != "random" else "")
    if not named:
        raise UsageError(
            "hf runs the model that a config.json describes, and none was named.",
            "Give --config FOLDER (random weights) or --weights FOLDER (saved ones).",
        )
    folder = Path(named).expanduser()
    return folder.parent if folder.name == "config.json" else folder


def described(folder: Path) -> dict[str, Any]:
    """Return the content of config.json. Raises `InputError` when it is missing, damaged, or not a model's."""
    path = folder / "config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing.", "Give the folder of a model of transformers.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged: it is not JSON.") from error
    if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
        raise InputError(f"{path} names no model_type.", "Give the config.json of a model of transformers.")
    return found


@functools.lru_cache(maxsize=4)
def _opened(folder: str) -> Any:
    """Return the configuration for transformers, without dropout and cache, in fp32."""
    transformers = _package()
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each kind of model checks its own entries in its own way
        raise InputError(f"transformers does not accept {folder}/config.json: {_first_line(error)}") from error
    if not getattr(config, "vocab_size", None):
        raise InputError(f"{folder} describes a {config.model_type}, which has no vocabulary: no language model.")
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    setattr(config, "dtype" if hasattr(config, "dtype") else "torch_dtype", torch.float32)
    config.use_cache = False
    return config


def _made(config: Any, settings: Settings) -> Any:
    auto, attention = _package().AutoModelForCausalLM, {"attn_implementation": settings.variant}
    try:
        if settings.weights == "random":
            torch.manual_seed(settings.seed)
            return auto.from_config(config, **attention)
        folder = Path(settings.weights).expanduser()
        if not folder.is_dir():
            raise InputError(f"--weights {settings.weights} is not a folder.", "Give the folder of a saved model.")
        return auto.from_pretrained(str(folder), config=config, local_files_only=True, **attention)
    except (ValueError, OSError, ImportError) as error:
        raise InputError(f"transformers cannot make this model: {_first_line(error)}") from error


def _package() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # what is not in the folder is not looked for elsewhere
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"


def _apply(module: nn.Module, function: Any, recurse: bool = True) -> nn.Module:
    """`nn.Module._apply` that lets no conversion round the buffers in `PRECISE`."""
    before = {name: module._buffers[name] for name in PRECISE if module._buffers.get(name) is not None}
    nn.Module._apply(module, function, recurse)
    for name, old in before.items():
        new = module._buffers[name]
        if old is not None and new is not None and new.dtype.itemsize < old.dtype.itemsize:
            module._buffers[name] = old.to(new.device)
    return module


def repeated(model: nn.Module) -> str:
    """The pattern of the repeated blocks, `model.layers.*`: the longest list of modules in no other; "" for none."""
    lists = {name: len(module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and name}
    outer = {name: n for name, n in lists.items() if not any(name.startswith(f"{other}.") for other in lists)}
    return f"{max(outer, key=lambda name: outer[name])}.*" if outer else ""


def forward_flop(model: nn.Module, config: Any, rows: int, length: int) -> float:
    """Matrix FLOP of a forward pass of B × T tokens: 2 a weight of a dense layer and token, 4·B·NH·T·T·HS of attention.

    0 for kinds of models that are not in `COUNTED`. The causal mask halves nothing.
    """
    if config.model_type not in COUNTED:
        return 0.0
    dense = [m for m in model.modules() if isinstance(m, nn.Linear) or type(m).__name__ == "Conv1D"]
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    attention = 4.0 * rows * heads * length**2 * size * config.num_hidden_layers
    return 2.0 * rows * length * sum(m.get_parameter("weight").numel() for m in dense) + attention
