"""A GPT-2 workload as llm.c's files: weights, a batch with what the model makes of it, tokenizer, tokens.

llm.c's `test_gpt2` reads the first two, runs the batch through its own code, and compares logits, loss and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perfkit.errors import InputError, UsageError
from perfkit.run_folder import Settings
from perfkit.workloads import bytepairs
from perfkit.workloads.bytepairs import Vocabulary
from perfkit.workloads.interface import Workload
from perfkit.workloads.llmc import header
from perfkit.workloads.llmc.checkpoint import DIMENSIONS, WTE, layout, write_checkpoint
from perfkit.workloads.llmc.state import DebugState, write_debug_state
from perfkit.workloads.llmc.tokenizer import Tokenizer, tokenizer_of, write_tokenizer
from perfkit.workloads.llmc.tokens import LIMIT, write_tokens

if TYPE_CHECKING:
    import numpy as np
    import torch

    from perfkit.workloads.tokens import TokenSource

# llm.c names files by the model's size; other presets by their own name.
_SIZES = {"gpt2": "124M", "medium": "355M", "large": "774M", "xl": "1558M"}


class Exported(msgspec.Struct):
    """Result of an export: the files in order, the loss of the batch, and sentences about what was left out."""

    files: list[Path]
    loss: float
    notes: list[str]


def export(
    workload: Workload,
    settings: Settings,
    folder: Path,
    tokenizer: Path | None = None,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda what: None,
) -> Exported:
    """Write checkpoint (fp32 and bf16), debug state, tokenizer and token data of `workload` into `folder`.

    The model runs once, forward and backward, in fp32 on the batch of step 0. `tokenizer` is a folder with a
    vocabulary; without one the data's own is taken, if it has one. Raises `UsageError` when the workload is not a GPT-2
    or files are in the way, `InputError` for a vocabulary that does not fit, `RunFailed` when a file cannot be written.
    """
    from perfkit.workloads.tokens import open_tokens

    dimensions = _dimensions(workload, settings)
    paths = _paths(folder, settings.preset)
    _make_room(folder, paths, overwrite)
    source = open_tokens(settings.data, dimensions["vocabulary"], settings.seed, settings.weights)
    found, note = _tokenizer(tokenizer, source, dimensions["vocabulary"])
    progress("building the model")
    model = workload.build(settings).to(settings.device)
    weights = {name: p.detach().cpu().numpy() for name, p in model.named_parameters()}
    _check_names(workload, dimensions, weights)
    progress("running one batch forward and backward")
    state = debug_state(model, workload, settings)
    progress("writing")
    write_checkpoint(paths["checkpoint"], dimensions, weights)
    write_checkpoint(paths["bf16"], dimensions, weights, bf16=True)
    write_debug_state(paths["state"], dimensions, state)
    written = [paths["checkpoint"], paths["bf16"], paths["state"]]
    notes = [note] if note else []
    if found:
        write_tokenizer(paths["tokenizer"], found)
        written.append(paths["tokenizer"])
    if dimensions["vocabulary"] <= LIMIT:
        write_tokens(paths["tokens"], _tokens(source, settings))
        written.append(paths["tokens"])
    else:
        notes.append(f"Token data is left out: it holds tokens below {LIMIT:,}.")
    return Exported(written, state.loss, notes)


def debug_state(model: torch.nn.Module, workload: Workload, settings: Settings) -> DebugState:
    """One batch through `model`, forward and backward, in the precision that it has."""
    idx, targets = (tensor.to(settings.device) for tensor in workload.batch(settings, 0))
    model.zero_grad(set_to_none=True)
    logits, loss = model(idx, targets)
    loss.backward()
    gradients = {name: p.grad.cpu().numpy() for name, p in model.named_parameters() if p.grad is not None}
    return DebugState(
        idx.cpu().numpy(), targets.cpu().numpy(), logits.detach().cpu().numpy(), float(loss.detach()), gradients
    )


def _dimensions(workload: Workload, settings: Settings) -> dict[str, int]:
    preset = workload.presets[settings.preset]
    if any(name not in preset for name in DIMENSIONS):
        raise UsageError(f"{workload.name} is not a GPT-2, and llm.c's files hold nothing else.", "Export gpt2.")
    return {name: int(preset[name]) for name in DIMENSIONS}


def _check_names(workload: Workload, dimensions: Mapping[str, int], weights: Mapping[str, object]) -> None:
    wanted = {name for names, _ in layout(dimensions, dimensions["vocabulary"]) for name in names}
    if wanted != set(weights):
        odd = sorted(wanted ^ set(weights))[0]
        raise UsageError(f"{workload.name} is not a GPT-2 like llm.c's: only one of them has {odd}.", "Export gpt2.")
    assert WTE in weights


def _paths(folder: Path, preset: str) -> dict[str, Path]:
    size = _SIZES.get(preset, preset)
    return {
        "checkpoint": folder / f"gpt2_{size}.bin",
        "bf16": folder / f"gpt2_{size}_bf16.bin",
        "state": folder / f"gpt2_{size}_debug_state.bin",
        "tokenizer": folder / "gpt2_tokenizer.bin",
        "tokens": folder / "tokens.bin",
    }


def _make_room(folder: Path, paths: Mapping[str, Path], overwrite: bool) -> None:
    existing = [path for path in paths.values() if path.exists()]
    if existing and not overwrite:
        raise UsageError(f"{existing[0]} is already there.", "--overwrite replaces it, or choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}.", "Choose another folder.") from error
    for path in existing:
        if not header.kind_of(path):
            raise UsageError(f"{path} is not a file of llm.c, so it is not overwritten.", "Choose another folder.")


def _tokenizer(folder: Path | None, source: TokenSource, limit: int) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer to write, or the sentence that says why it is missing."""
    vocabulary: Vocabulary | None = source.vocabulary
    if folder is not None:
        if not bytepairs.folder_has_vocabulary(folder):
            raise InputError(
                f"--tokenizer {folder}: that folder has no vocabulary.",
                "It holds tokenizer.json, or vocab.json and merges.txt.",
            )
        vocabulary = bytepairs.open_folder(folder)
    if vocabulary is None:
        return None, "The tokenizer is left out: --tokenizer FOLDER names one with GPT-2's vocab.json and merges.txt."
    if vocabulary.size > limit:
        raise InputError(f"The {vocabulary.origin} is too large: the model has {limit} entries.", "Use another preset.")
    return tokenizer_of(vocabulary), ""


def _tokens(source: TokenSource, settings: Settings) -> np.ndarray:
    """All tokens of the data; of synthetic ones, which never end, those of the batch."""
    from perfkit.workloads.tokens import StoredTokens

    if isinstance(source, StoredTokens):
        return source.tokens
    return source.window(0, settings.batch_size * (settings.sequence_length or 1))
