"""The files of a Hugging Face folder: `config.json`, and weights in `model.safetensors` or `pytorch_model.bin`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.errors import InputError, RunFailed, Unavailable, UsageError
from perfkit.run_folder import write_whole

if TYPE_CHECKING:
    import torch

CONFIG, SAFETENSORS = "config.json", "model.safetensors"
_PICKLED = "pytorch_model.bin"


def read_config(folder: Path) -> dict[str, Any]:
    """Return the content of config.json. Raises `InputError` when it is missing or damaged."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{folder} is not a Hugging Face folder: it has no config.json.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged: it is not JSON.") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} is damaged: it holds no settings.")
    return config


def check_computed(config: Mapping[str, Any], computed: Mapping[str, tuple[Any, ...]], path: Path, model: str) -> None:
    """Raise `InputError` where `config` asks for what is not among the `computed` values; absent means the first."""
    for name, values in computed.items():
        if config.get(name, values[0]) not in values:
            raise InputError(f"{path} asks for {name} = {config[name]}; perfkit's {model} has {values[0]}.")


def positive(config: Mapping[str, Any], fields: Mapping[str, str], path: Path) -> dict[str, int]:
    """The whole numbers of `fields` (dimension → entry). Raises `InputError` unless all are there."""
    found = {name: config.get(field, 0) for name, field in fields.items()}
    if not all(isinstance(value, int) and value > 0 for value in found.values()):
        raise InputError(f"{path} does not give all of {', '.join(fields.values())}.")
    return found


def weight_files(folder: Path) -> list[Path]:
    """The weight files, one, or several that an index lists. Raises `InputError` when they are missing."""
    for name in (SAFETENSORS, _PICKLED):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return [folder / name for name in _listed(index)]
    raise InputError(f"{folder} has a config.json but neither {SAFETENSORS} nor {_PICKLED}.")


def _listed(index: Path) -> list[str]:
    """The file names in an index of several weight files."""
    try:
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{index} is damaged: it lists no weight files.") from error
    return sorted(Path(str(file)).name for file in files)


def tensors(files: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in weight files by their names. Raises `InputError` and `Unavailable`, while they are read."""
    for path in files:
        yield from _safe(path) if path.suffix == ".safetensors" else _pickled(path)


def _safe(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise Unavailable(
            f"{path} needs the package safetensors, which is not installed.", "Install it: pip install 'perfkit[data]'."
        ) from error
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - the file is not a mapping
                yield name, file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged, or not a safetensors file: {error}.") from error


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


def write(folder: Path, config: str, weights: Mapping[str, torch.Tensor]) -> list[Path]:
    """Write config.json and model.safetensors into `folder`; returns the two paths.

    Raises `UsageError` when the folder cannot be made, `Unavailable` without the package safetensors, `RunFailed` when
    a file cannot be written.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import save_file
    except ImportError as error:
        raise Unavailable(
            "Writing weights needs the package safetensors, which is not installed.",
            "Install it: pip install 'perfkit[data]'.",
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}.", "Choose another folder.") from error
    paths = [folder / CONFIG, folder / SAFETENSORS]
    write_whole(paths[0], config)
    part = folder / f".{SAFETENSORS}.part"
    try:
        save_file({name: t.detach().cpu().contiguous() for name, t in weights.items()}, part, {"format": "pt"})
        part.replace(paths[1])
    except (SafetensorError, OSError) as error:
        part.unlink(missing_ok=True)
        raise RunFailed(f"{paths[1]} could not be written: {error}.", "Look for space on the disk.") from error
    return paths
