"""Ranges of passes and modules, which the watcher opens where torch's functions are called while steps are recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from perfkit import ranges


class Marks:
    """Marks modules by their path, the backward pass, the optimizer, and what prepares the gradients for it.

    After as many backward passes as a step has (`usual`, counted in the step before) the work until the optimizer's
    step is the optimizer's: clipping, norms.
    """

    def __init__(self, path_of: Callable[[Any], str]) -> None:
        self._path_of = path_of
        self._backwards = self.usual = 0
        self.in_backward = False
        self.calls_are_forward = False  # each call of a model is marked as a forward pass of its own
        self._tail = contextlib.ExitStack()

    @property
    def trains(self) -> bool:
        """Whether the step, or the one before it, had a backward pass."""
        return self.usual + self._backwards > 0

    def module(self, module: Any, outermost: bool = False) -> contextlib.AbstractContextManager[None]:
        """The range of a call of `module`; the model itself has none."""
        path = self._path_of(module)
        own = ranges.mark(f"{ranges.MODULE}{path}") if path else contextlib.nullcontext()
        return _both(ranges.in_pass("forward"), own) if outermost and self.calls_are_forward else own

    def outermost_call(self) -> None:
        """A model is called: what prepared the optimizer's step is over."""
        self._tail.close()

    def backward(self, call: Callable[[], Any]) -> Any:
        """Run a backward pass in its range; one inside another is part of it."""
        if self.in_backward:
            return call()
        self._tail.close()
        self.in_backward = True
        try:
            with ranges.in_pass("backward"):
                result = call()
        finally:
            self.in_backward = False
        self._backwards += 1
        if self._backwards == self.usual:
            self._tail.enter_context(ranges.in_pass("optimizer"))
        return result

    def optimizer(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
        """Run an optimizer's step in its range, and its closure, which runs the model, outside of that pass."""
        self._tail.close()
        if len(args) > 1:
            args = (args[0], _in_forward(args[1]), *args[2:])
        elif "closure" in kwargs:
            kwargs = {**kwargs, "closure": _in_forward(kwargs["closure"])}
        with ranges.in_pass("optimizer"):
            return call(*args, **kwargs)

    def boundary(self) -> None:
        """A step is over."""
        self._tail.close()
        self.usual, self._backwards = self._backwards, 0


def _in_forward(closure: Any) -> Any:
    if not callable(closure):
        return closure

    def marked() -> Any:
        with ranges.in_pass("forward"):
            return closure()

    return marked


@contextlib.contextmanager
def _both(
    outer: contextlib.AbstractContextManager[None], inner: contextlib.AbstractContextManager[None]
) -> Iterator[None]:
    with outer, inner:
        yield
