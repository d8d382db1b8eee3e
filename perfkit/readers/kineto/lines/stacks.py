"""Which frame of Python each host event ran in, by what a trace holds of its stacks.

1. perfkit's own ranges (`perfkit.capture.agent.lines.line_tracer`): lines of the user's code, calls in libraries.
2. The profiler's Python functions (`with_stack=True`): a frame has the first line of its function, not the current one.
3. The argument "Call stack" of operators (with `_ExperimentalConfig(verbose=True)` besides, and of old versions).

The user's code comes first: the innermost frame outside the standard library, site-packages and torch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.profile_names import AT, IN
from perfkit.readers.kineto.decode.events import PYTHON, HostEvents

_FRAME = re.compile(r"(.+)\((\d{1,9})\): (.+)", re.DOTALL)
_INSTALLED = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python3(\.\d+)?)/|^<(?!stdin|ipython)|torchinductor_"
    r"|(^|/)[a-z2-7]{2}/c[a-z2-7]{40,60}\.py$"  # Inductor names its files by their content, wherever its cache is
)
# torch.profiler takes the folders of sys.path off its paths: what is installed then begins with its package.
_PACKAGES = re.compile(
    "torch|torch(vision|audio|text|tune|data)|transformers|accelerate|lightning|pytorch_lightning|timm|datasets|"
    "diffusers|numpy|pandas|scipy|sklearn|triton|deepspeed|apex|flash_attn|xformers|bitsandbytes|einops|tqdm|PIL|cv2|"
    "perfkit|IPython|ipykernel|ignite|fairscale|megatron|vllm|peft|trl|ray|thunder|tokenizers|huggingface_hub|"
    "safetensors|tensorboard|wandb|matplotlib|hydra|fsspec|nvtx"
)


class SourceFrame(NamedTuple):
    """A line of a file (0: somewhere in its function) and its function. `exact`: the line that ran, else the first line
    of the function, or (`compiled`) the line that calls the compiled code."""

    file: str
    line: int
    function: str
    exact: bool
    compiled: bool = False


@dataclass
class EventFrames:
    """For each host event the frame of the `user` and the `library` frame inside it, as places in `frames` (−1: none).

    `mark` is the host event that says the user's frame, −1 where none does: a range or function, or the operator itself
    whose call stack it is.
    """

    frames: list[SourceFrame]
    user: Integers
    library: Integers
    mark: Integers
    is_mark: Booleans = field(default_factory=lambda: np.empty(0, bool))  # events that are ranges of the user's lines


def stacks_of(host: HostEvents) -> EventFrames | None:
    """The stacks of a trace; None where it holds none."""
    if not len(host):
        return None
    if any(name.startswith(AT) for name in host.names):
        return _by_events(host, _own, np.ones(len(host), bool))
    python = host.category == PYTHON
    if python.any() and (found := _by_events(host, _of_torch, python)) is not None:
        return found
    return _by_call_stacks(host)


def _own(name: str) -> tuple[SourceFrame, bool] | None:
    user = name.startswith(AT)
    found = _FRAME.fullmatch(name.removeprefix(AT).removeprefix(IN)) if user or name.startswith(IN) else None
    return (SourceFrame(found[1], int(found[2]), found[3], user), user) if found else None


def _of_torch(name: str) -> tuple[SourceFrame, bool] | None:
    found = _FRAME.fullmatch(name)
    if found is None or name.startswith("nn.Module: "):
        return None
    return SourceFrame(found[1], int(found[2]), found[3], False), not is_library(found[1])


def is_library(path: str) -> bool:
    """Return whether a path in a trace is that of the standard library or of an installed package."""
    first = path.replace("\\", "/").lstrip("./").partition("/")[0]
    alone = first.removesuffix(".py")
    if _INSTALLED.search(path.replace("\\", "/")):
        return True
    return not path.startswith(("/", ".")) and (bool(_PACKAGES.fullmatch(first)) or alone in sys.stdlib_module_names)


def _by_events(
    host: HostEvents, frame_of: Callable[[str], tuple[SourceFrame, bool] | None], allowed: Booleans
) -> EventFrames | None:
    """Stacks by events whose names say a frame, and whether it is the user's."""
    frames: list[SourceFrame] = []
    number: dict[SourceFrame, int] = {}
    of_name = np.full(len(host.names), -1, np.int64)
    users = np.zeros(len(host.names), bool)
    for code, name in enumerate(host.names):
        if (found := frame_of(name)) is not None:
            frame, users[code] = found
            of_name[code] = number.setdefault(frame, len(number))
    frames = list(number)
    if not frames:
        return None
    is_frame = (of_name[host.name] >= 0) & allowed
    is_user = is_frame & users[host.name]
    mark, inner = host.nearest(is_user), host.nearest(is_frame & ~users[host.name])
    user = np.where(mark >= 0, of_name[host.name[np.maximum(mark, 0)]], -1)
    # Parents stand before their children: of two events around another one the later is the inner one.
    library = np.where(inner > mark, of_name[host.name[np.maximum(inner, 0)]], -1)
    return EventFrames(frames, user, library, mark, is_user)


def _by_call_stacks(host: HostEvents) -> EventFrames | None:
    """Stacks by the texts at operators; what lies inside one without a text of its own has that of the operator."""
    pairs = [_innermost(text.split(";")) for text in host.stacks]
    number: dict[SourceFrame, int] = {}
    for pair in pairs:
        for frame in pair:
            if frame is not None:
                number.setdefault(frame, len(number))
    if not number:
        return None
    codes = np.array([[-1 if f is None else number[f] for f in pair] for pair in pairs] + [[-1, -1]], np.int64)
    own = np.where(host.stack >= 0, np.arange(len(host)), -1)
    said = host.inherit(own)
    text = np.where(said >= 0, host.stack[np.maximum(said, 0)], -1)
    return EventFrames(list(number), codes[text, 0], codes[text, 1], said, np.zeros(len(host), bool))


def _innermost(stack: Sequence[str]) -> tuple[SourceFrame | None, SourceFrame | None]:
    """The innermost frame of the user in a stack, the inner one first, and the library's frame inside it."""
    library: SourceFrame | None = None
    for name in stack:
        found = _FRAME.fullmatch(name.strip())
        if found is None:
            continue
        frame = SourceFrame(found[1], int(found[2]), found[3], False)
        if not is_library(frame.file):
            return frame, library
        library = library or frame
    return None, library
