"""Ranges of passes and modules, which the watcher opens where torch's functions are called while steps are recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from perfkit import profile_names, ranges

BETWEEN, EVALUATION, LOADING = "between", "evaluation", "loading"


class ModuleRanges:
    """Marks of one thread: modules by their path, the backward pass, the optimizer, and what prepares gradients for it.

    After as many backward passes as a step has (`usual`, counted in the step before) the work until the optimizer's
    step is the optimizer's: clipping, norms. Where `training`, calls of modules without gradients are an evaluation,
    up to the next one with gradients, and what follows the optimizer's step, up to the next call of a module, lies
    between the steps: logging, averages of the parameters, a batch that is made.
    """

    def __init__(self, path_of: Callable[[Any], str]) -> None:
        self._path_of = path_of
        self._backwards = self.usual = 0
        self._called = self._calls = False  # modules with gradients, in this step and in the one before
        self.in_backward = self.in_optimizer = False
        self.calls_are_forward = False  # each call of a model is marked as a forward pass of its own
        self.training = False
        self._tail = contextlib.ExitStack()

    @property
    def trains(self) -> bool:
        """Return whether the step, or the one before it, had a backward pass."""
        return self.usual + self._backwards > 0

    def module(self, module: Any, outermost: bool = False) -> contextlib.AbstractContextManager[None]:
        """The range of a call of `module`; the model itself has none."""
        path = self._path_of(module)
        own = ranges.mark(f"{profile_names.MODULE}{path}") if path else contextlib.nullcontext()
        return _both(ranges.in_pass("forward"), own) if outermost and self.calls_are_forward else own

    def outermost_call(self, with_gradients: bool) -> None:
        """A model is called: what followed the last step, or prepared the optimizer's, is over."""
        self._tail.close()
        self._called |= with_gradients
        if self.in_optimizer:
            self._tail.enter_context(ranges.in_pass("forward"))  # a closure, up to its backward pass
        elif self.training and not with_gradients:
            self._tail.enter_context(ranges.in_pass(EVALUATION))

    def loading(self) -> contextlib.AbstractContextManager[None]:
        """Return the range of a batch that a loader makes."""
        return ranges.in_pass(LOADING)

    def backward(self, marked: bool = True) -> Callable[[], None] | None:
        """Open a backward pass's range, if it is to be `marked`; return what closes it. None for one inside another,
        which is part of it."""
        if self.in_backward:
            return None
        self._tail.close()
        self.in_backward = True
        passed = ranges.in_pass("backward") if marked else contextlib.nullcontext()
        passed.__enter__()

        def close() -> None:
            passed.__exit__(None, None, None)
            self.in_backward = False
            self._backwards += 1
            if marked and self._backwards == self.usual:
                self._tail.enter_context(ranges.in_pass("optimizer"))

        return close

    def optimizer(self) -> Callable[[], None]:
        """Open the range of an optimizer's step; return what closes it. Its closure runs the model in passes of its
        own."""
        self._tail.close()
        passed = ranges.in_pass("optimizer")
        passed.__enter__()
        self.in_optimizer = True

        def close() -> None:
            self._tail.close()
            self.in_optimizer = False
            passed.__exit__(None, None, None)

        return close

    def close(self) -> None:
        """Close the range that lasts until the next pass."""
        self._tail.close()

    def boundary(self) -> None:
        """Note that a step is over."""
        self.close()
        self.usual, self._backwards = self._backwards, 0
        self._calls, self._called = self._called, False

    def begun(self) -> None:
        """Note that a step has begun; in `training` right after an optimizer's step."""
        if self.training and self._calls:
            self._tail.enter_context(ranges.in_pass(BETWEEN))


@contextlib.contextmanager
def _both(
    outer: contextlib.AbstractContextManager[None], inner: contextlib.AbstractContextManager[None]
) -> Iterator[None]:
    with outer, inner:
        yield
