"""Tensors that a program's own objects hold, by address: parameters, gradients, buffers, and optimizer state.

They are noted while steps are recorded with their allocations, each time within a range `perfkit:held:N`, and written
into the trace. Nothing of the program changes: addresses are read, and no tensor is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from perfkit import ranges
from perfkit.profile_names import HELD, HELD_KEY

if TYPE_CHECKING:
    import torch

PARAMETERS, GRADIENTS, BUFFERS, STATE = "parameters", "gradients", "buffers", "optimizer state"
Named = tuple[str, str, Any]  # kind, name, tensor


class OwnedTensors:
    """Notes of what is held at some moments of a recording."""

    def __init__(self) -> None:
        self._notes: list[list[tuple[str, str, int, int]]] = []

    def note(self, named: Iterable[Named]) -> None:
        """Note the addresses of some tensors now."""
        with ranges.mark(f"{HELD}{len(self._notes)}"):
            self._notes.append([(kind, name, *where) for kind, name, one in named if (where := place(one))])

    def write(self, profiler: Any) -> None:
        """Write the notes into the trace of a profiler that records."""
        if self._notes:
            profiler.add_metadata_json(HELD_KEY, json.dumps(self._notes))


def named(
    parameters: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor], optimizers: Iterable[Any]
) -> Iterator[Named]:
    """The tensors of models by name, with the gradients that exist, and the state of optimizers.

    Parameters that only an optimizer holds have no name.
    """
    names = {id(one): name for name, one in parameters.items()}
    yield from _with_gradients(parameters.items())
    yield from ((BUFFERS, name, buffer) for name, buffer in buffers.items())
    for optimizer in optimizers:
        for parameter, state in list(optimizer.state.items()):
            if isinstance(state, dict):
                yield from ((STATE, names.get(id(parameter), ""), value) for value in state.values())
        others = [one for group in optimizer.param_groups for one in group["params"] if id(one) not in names]
        yield from _with_gradients(("", one) for one in others)


def _with_gradients(parameters: Iterable[tuple[str, torch.Tensor]]) -> Iterator[Named]:
    for name, parameter in parameters:
        yield PARAMETERS, name, parameter
        if parameter.grad is not None:
            yield GRADIENTS, name, parameter.grad


def place(tensor: Any) -> tuple[int, int] | None:
    """The address and the bytes of a tensor's storage; None for one that has none of its own."""
    import torch

    tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor the part on this rank
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    try:
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):  # fake, sparse, or on a device without addresses
        return None
    return (address, size) if address and size else None
