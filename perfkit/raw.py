"""What a training step written by hand is made of: an arena of tensors, kernels into given tensors, marks.

A workload may bring such a step beside its model (`Workload.by_hand`), and the backend `llmc` runs it: no autograd,
each tensor allocated once, every kernel named. Matrix products come from PyTorch's libraries by their `out=` forms; the
rest are operations of the kernel catalog.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from perfkit import kernels, ranges
from perfkit.kernels.bound import Bound
from perfkit.kernels.memory import advise_huge_pages
from perfkit.run_folder import Settings

_ALIGNMENT = 64  # bytes: a cache line, a vector of AVX-512, four of a GPU's 16-byte accesses


class Arena:
    """Tensors by name in one allocation, each on a boundary of 64 bytes, all zero at first.

    `flat` (N) is the whole, gaps included. One arena has one precision: give its `dtype`, and the `shapes` by name.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]], dtype: torch.dtype, device: str | torch.device) -> None:
        step = _ALIGNMENT // dtype.itemsize
        offsets, end = {}, 0
        for name, shape in shapes.items():
            offsets[name] = end
            end += -(-math.prod(shape) // step) * step
        self.flat = torch.zeros(end, dtype=dtype, device=device)
        if self.flat.device.type == "cpu":
            advise_huge_pages(self.flat)
        self._views = {
            name: self.flat[offsets[name] : offsets[name] + math.prod(shape)].view(tuple(shape))
            for name, shape in shapes.items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return self._views[name]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors by name."""
        return self._views


class Kernels:
    """Calls operations of the catalog on tensors of arenas, each bound at its first call.

    Tensors are told apart by where they lie, so they must be views of memory that stays: of an arena.
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
    own = ranges.mark(f"{ranges.MODULE}{module}")
    return _serving(own, serves) if serves and ranges.listening() else own


@contextmanager
def _serving(own: AbstractContextManager[None], serves: Sequence[tuple[str, str, float]]) -> Iterator[None]:
    whole = sum(weight for *_, weight in serves)
    shares = [(module, operator, weight / whole) for module, operator, weight in serves]
    with own, ranges.mark(ranges.line_name("by_hand", 0, "declared", shares)):
        yield


def product(a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> None:
    """out (M, N) = a (M, K) · b (K, N), or with `add` its sum with what `out` holds."""
    if add:
        out.addmm_(a, b)
    else:
        torch.mm(a, b, out=out)


class RawStep(ABC):
    """A model's forward and backward by hand, over the parameters of `model`.

    The parameters move into one arena (`model` keeps working on them there), their gradients into another with the
    same names and places. `rows` gives parameters more rows there than they have; the others stay 0, and so must their
    gradients.
    """

    def __init__(self, model: torch.nn.Module, settings: Settings, rows: Mapping[str, int] | None = None) -> None:
        named = dict(model.named_parameters())  # a shared parameter once
        first = next(iter(named.values()))
        more = rows or {}
        shapes = {name: (more.get(name, p.shape[0]), *p.shape[1:]) for name, p in named.items()}
        self._rows = {name: p.shape[0] for name, p in named.items()}
        self.dtype, self.device = first.dtype, first.device
        self.parameters = Arena(shapes, self.dtype, self.device)
        with torch.no_grad():
            for name, parameter in named.items():
                place = self.parameters[name][: self._rows[name]]
                place.copy_(parameter)
                parameter.data = place
        self.gradients = Arena(shapes, self.dtype, self.device) if settings.training else None
        self.call = Kernels()

    def named_gradients(self) -> dict[str, Tensor]:
        """Gradients by the names of the parameters, in the parameters' shapes; none in inference."""
        held = self.gradients.tensors if self.gradients else {}
        return {name: gradient[: self._rows[name]] for name, gradient in held.items()}

    @abstractmethod
    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Run the forward of one batch up to the outputs, and return these: a tensor of the arena."""

    @abstractmethod
    def loss(self, batch: tuple[Tensor, ...], scale: float) -> Tensor:
        """The loss () of the batch, after `forward`, and the gradient of `scale` · loss for the outputs, kept.

        The outputs may be overwritten.
        """

    @abstractmethod
    def backward(self, batch: tuple[Tensor, ...], add: bool) -> None:
        """Compute the gradients of all parameters, after `loss`; with `add`, add them to those there are."""
