"""Calls of a step by hand: kernels into given tensors, and the marks around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import Tensor

from perfkit import kernels, profile_names, ranges
from perfkit.kernels.bound import Bound


class Kernels:
    """Calls operations of the catalog on tensors of arenas, each bound at its first call.

    Tensors are distinguished by their addresses, so they must be views of memory that stays: of an arena.
    """

    def __init__(self) -> None:
        self._bound: dict[tuple[Any, ...], Bound] = {}

    def __call__(self, name: str, *arguments: Any, out: Sequence[Tensor] = (), add: Sequence[str] = ()) -> None:
        """Run the operation `name` on `arguments`, in the order of its schema, into the tensors `out`.

        `add` names outputs that are added to what their tensors hold. A profiler sees the call as `perfkit::NAME`.
        """
        key = (name, *(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))
        key += (*(o.data_ptr() for o in out), *add)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = kernels.bind(name, arguments, out, add)
        bound()


def at(module: str, serves: Sequence[tuple[str, str, float]] = ()) -> AbstractContextManager[None]:
    """Mark what runs inside as the work of the module at this path, forward or backward.

    A kernel that serves several operators `serves` them: module path, operator, and a weight that its share follows,
    such as how many large tensors the operator would read and write as a kernel of its own.
    """
    own = ranges.mark(f"{profile_names.MODULE}{module}")
    return _serving(own, serves) if serves and ranges.listening() else own


@contextmanager
def _serving(own: AbstractContextManager[None], serves: Sequence[tuple[str, str, float]]) -> Iterator[None]:
    whole = sum(weight for *_, weight in serves)
    shares = [(module, operator, weight / whole) for module, operator, weight in serves]
    with own, ranges.mark(profile_names.line_name("by_hand", 0, "declared", shares)):
        yield
