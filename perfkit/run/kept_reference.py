"""References in fp64 of earlier runs, kept by what they were computed from.

A reference is found again where all that it was made of is the same:

    key         settings, versions, every parameter, buffer and batch by its bytes
    code        each Python file that the process had imported at the end: its size and time, and outside the
                interpreter's own folders its text
    witness     the first step's outputs and loss, computed once more, forward only: what neither key nor code shows (an
                environment variable, a file that the model reads) changes them

Only what all three hold for is used. The steps of training are then left out: a forward pass is a thirtieth of them.
`PERFKIT_REFERENCES=new` in the environment computes every reference again, and keeps none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perfkit.cache import cache_dir, locked
from perfkit.settings import Settings
from perfkit.workloads import forms

if TYPE_CHECKING:
    import torch

SAME = 1e-9  # relative error of the witness: fp64 sums in another order differ by 1e-13
MOST_BYTES, MOST_OF_DISK = 6 << 30, 0.1  # of all kept references, and of the disk's free space by a new one

_KEPT = "kept.json"
# They say how often, and with what, steps are measured; `seed` and the rest say what is computed.
_OF_MEASURING = ("steps", "warmup", "profiler", "profile_memory", "lines", "launch_blocking", "allocator", "executors")


def key_of(settings: Settings, model: torch.nn.Module, batches: Sequence[Any]) -> str:
    """Return the digest of all that a reference is computed from, but its code; `batches` are those of its steps.

    It is "" where none are wanted, they are too large to be kept, or a tensor has no bytes to show, as
    some subclasses.
    """
    if os.environ.get("PERFKIT_REFERENCES") == "new":
        return ""
    if sum(p.numel() * p.element_size() for p in model.parameters()) > MOST_BYTES:
        return ""  # its gradients would not be kept
    try:
        return _digest(settings, model, batches)
    except (RuntimeError, NotImplementedError, TypeError):  # of a tensor without bytes, as fake or subclassed ones
        return ""


def _digest(settings: Settings, model: torch.nn.Module, batches: Sequence[Any]) -> str:
    told = {name: value for name, value in msgspec.to_builtins(settings).items() if name not in _OF_MEASURING}
    digest = hashlib.sha256(json.dumps([told, *_versions()], sort_keys=True).encode())
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"{name} {tensor.requires_grad}".encode())
        _add(digest, tensor)
    for batch in batches:
        digest.update(repr(forms.mapped(batch, lambda tensor: _add(digest, tensor))).encode())
    return digest.hexdigest()


def _versions() -> list[str]:
    names = ("torch", "numpy", "thunder", "transformers")
    found = {d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"] in names}
    return [platform.python_version(), platform.machine(), json.dumps(found, sort_keys=True)]


def _add(digest: Any, tensor: torch.Tensor) -> str:
    """Add a tensor's values; what stands for it in its batch."""
    import torch

    values = tensor.detach()
    values = values.coalesce().to_dense() if values.is_sparse else values
    digest.update(values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return f"{values.dtype} {tuple(values.shape)}"


def _imported() -> set[str]:
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {file for file in files if isinstance(file, str)}


def _state(file: str) -> str:
    """Return what distinguishes a file from a changed one."""
    try:
        if file.startswith(_installed()):
            status = os.stat(file)
            return f"{status.st_size} {status.st_mtime_ns}"
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return "none"


@functools.cache
def _installed() -> tuple[str, ...]:
    """The folders of the interpreter and its packages."""
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _same(code: dict[str, str]) -> bool:
    """Return whether the files of `code` are as they were, and nothing else is imported here."""
    return code.keys() >= _imported() and all(_state(file) == state for file, state in code.items())


def find(name: str, folder: Path) -> dict[str, Any] | None:
    """Put the files of the reference `name` into `folder`, and return what was kept with them; None without one."""
    kept = _folder() / name
    with locked(kept):
        try:
            told: dict[str, Any] = json.loads((kept / _KEPT).read_text())
            if not _same(told.pop("code")):
                return None
            _link(kept, folder)
            os.utime(kept)
        except (OSError, ValueError, KeyError):
            return None
    return told


def keep(name: str, folder: Path, told: dict[str, Any]) -> None:
    """Keep the reference that lies in `folder`, and what goes with it. Where the disk has no room, it is not kept."""
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    place = _folder()
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        if size > MOST_BYTES or size > MOST_OF_DISK * shutil.disk_usage(place).free:
            return
        with locked(place / name):
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
            try:
                _link(folder, new)
                (new / _KEPT).write_text(json.dumps({**told, "code": {file: _state(file) for file in _imported()}}))
                shutil.rmtree(place / name, ignore_errors=True)
                new.rename(place / name)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        _make_room(place)


def _make_room(place: Path) -> None:
    """Let the references go that were not used for longest."""
    left = MOST_BYTES
    for one in sorted(_references(place), key=lambda folder: folder.stat().st_mtime, reverse=True):
        left -= sum(file.stat().st_size for file in one.iterdir())
        if left < 0:
            shutil.rmtree(one, ignore_errors=True)


def _references(place: Path) -> Iterator[Path]:
    return (one for one in place.iterdir() if one.is_dir() and not one.name.startswith("."))


def _link(source: Path, target: Path) -> None:
    """The files of `source` in `target` too, without a copy where both are on one disk: nobody writes into them."""
    for file in source.iterdir():
        if not file.is_file() or file.name == _KEPT:
            continue
        own = target / file.name
        own.unlink(missing_ok=True)
        try:
            os.link(file, own)
        except OSError:
            shutil.copyfile(file, own)


def _folder() -> Path:
    return cache_dir() / "references"
