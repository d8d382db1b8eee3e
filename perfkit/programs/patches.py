"""Wrapping functions of torch for a while, and giving them back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


class Patches:
    """Attributes that are replaced until `restore`.

    A wrapper that somebody else wrapped in turn cannot be taken out; it must do nothing by itself when it is idle.
    """

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        """Replace `owner.name`, where it exists, by `wrapper` of it."""
        original = vars(owner).get(name)
        if original is None:
            return
        function = original.__func__ if isinstance(original, staticmethod) else original
        made: Any = functools.wraps(function)(wrapper(function))
        if isinstance(original, staticmethod):
            made = staticmethod(made)
        setattr(owner, name, made)
        self._made.append((owner, name, original, made))

    def restore(self, but: tuple[Any, str] | None = None) -> None:
        """Put back what is still as it was made here, `but` an attribute (its owner and name) that is to stay."""
        while self._made:
            owner, name, original, made = self._made.pop()
            if vars(owner).get(name) is made and (owner, name) != but:
                setattr(owner, name, original)
