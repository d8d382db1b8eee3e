"""Wrapping functions of torch for a while, so that neither the program nor a compiler sees it, and giving them back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


# Dynamo refers weakly to functions that it came by. The callback at the end of one is a frame that it would compile.
_kept: list[Any] = []


class Patches:
    """Attributes that are replaced until `restore`.

    A wrapper that somebody else wrapped in turn cannot be taken out; it must do nothing by itself when it is idle. Each
    wrapper first asks whether a compiler traces it, and then calls what it wraps: no other question becomes a guard.
    """

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        """Replace `owner.name`, where it exists, by `wrapper` of it."""
        original = vars(owner).get(name)
        if original is None:
            return
        function = original.__func__ if isinstance(original, staticmethod) else original
        made: Any = disguised(wrapper(function), function)
        self.replace(owner, name, staticmethod(made) if isinstance(original, staticmethod) else made)

    def replace(self, owner: Any, name: str, made: Any) -> None:
        """Put `made` in the place of `owner.name`, where that exists."""
        original = vars(owner).get(name)
        if original is not None:
            setattr(owner, name, made)
            self._made.append((owner, name, original, made))

    def restore(self) -> None:
        """Put back what is still as it was made here."""
        while self._made:
            owner, name, original, made = self._made.pop()
            if vars(owner).get(name) is made:
                setattr(owner, name, original)


def disguised(wrapper: Any, function: Callable[..., Any]) -> Any:
    """Return `wrapper` with the name, signature, defaults and attributes of `function`, skipped by Dynamo."""
    skipped_by_dynamo(wrapper)
    made: Any = functools.wraps(function)(wrapper)
    # A function of *args and **kwargs has no use for them, but programs look at them.
    made.__defaults__ = getattr(function, "__defaults__", None)
    made.__kwdefaults__ = getattr(function, "__kwdefaults__", None)
    _kept.append(made)
    return made


def skipped_by_dynamo(function: Any) -> None:
    """Have Dynamo leave the frames of `function` to Python, and compile what it calls, as it would without it."""
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, skip)
    elif hasattr(frames, "skip_code"):  # before torch 2.8
        frames.skip_code(function.__code__)


class OptimizerSteps:
    """The `step` of every optimizer's class, of those that exist and of those to come, until `restore`."""

    def __init__(self, wrapper: Wrapper) -> None:
        self._wrapper = wrapper
        self._patches = Patches()
        self._made: set[Any] = set()

    def install(self) -> None:
        """Wrap them: PyTorch gives each class the wrapper that `profile_hook_step` makes, with its first object."""
        self._patches.wrap(torch.optim.Optimizer, "profile_hook_step", self._hooked)
        for cls in _classes(torch.optim.Optimizer):
            step = vars(cls).get("step")
            if getattr(step, "hooked", False):
                type.__setattr__(cls, "step", self._wrapped(step))

    def restore(self) -> None:
        """Give each class its own step back."""
        self._patches.restore()
        for owner in _classes(torch.optim.Optimizer):
            step = vars(owner).get("step")
            if step in self._made:
                hooked = getattr(step, "hooked", None)
                type.__setattr__(owner, "step", step.__wrapped__)  # no metaclass of the program's sees it
                if hooked is not None:
                    owner.step.hooked = hooked
        self._made.clear()

    def _wrapped(self, step: Callable[..., Any]) -> Any:
        made = disguised(self._wrapper(step), step)
        self._made.add(made)
        return made

    def _hooked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            made: Callable[..., Any] = self._wrapped(original(function))
            return made

        return profile_hook_step


def _classes(base: type) -> Iterator[Any]:
    cls: Any
    for cls in base.__subclasses__():
        yield cls
        yield from _classes(cls)
