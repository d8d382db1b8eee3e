"""The models of a program: the outermost modules that it calls, and the paths of what is in them."""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import torch

from perfkit.capture.agent.models import names


class Models:
    """Modules that were called from outside of all modules, remembered without keeping them alive.

    With `wrappers_are_models` a compiled model goes by the path of what it wraps: its kernels tell their own modules.
    """

    def __init__(self) -> None:
        self.wrappers_are_models = False
        self._called: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._filled: set[int] = set()  # of these, that had a parameter or a buffer
        self._paths: dict[int, str] = {}

    def add(self, module: torch.nn.Module) -> None:
        """A module was called from outside, or traced by a compiler."""
        known = self._called.get(id(module))
        if known is None or known() is not module:
            self._called[id(module)] = weakref.ref(module)
            self._filled.discard(id(module))
            self._paths = {}

    def is_bare(self, module: torch.nn.Module) -> bool:
        """Return whether a module that was added has neither parameters nor buffers. Looking walks all in it: never
        again once it has."""
        if id(module) in self._filled:
            return False
        bare = next(names.parameters(module), None) is None and not any(one._buffers for one in names.modules(module))
        if not bare:
            self._filled.add(id(module))
        return bare

    def complete(self) -> None:
        """Take the module that holds several of the models by name, where there is one: an agent whose actor and critic
        are called, and which is itself never called. Looking costs up to a tenth of a second."""
        models = [model for model in self.found() if next(names.parameters(model), None) is not None]
        if len(models) < 2:
            return
        holders: dict[int, torch.nn.Module] = {}
        for thing in gc.get_objects():
            # By type: isinstance asks objects for their __class__, and some warn when they are asked.
            if issubclass(type(thing), torch.nn.Module):
                holders |= {id(child): thing for _, child in names.named_children(thing)}
        held = Counter(id(holder) for model in models if (holder := _outermost(model, holders)) is not model)
        for model in models:
            holder = _outermost(model, holders)
            if held[id(holder)] > 1:
                self.add(holder)

    def clear(self) -> None:
        """Forget all."""
        self._called.clear()
        self._filled.clear()

    def found(self) -> list[torch.nn.Module]:
        """Return the models that are not part of another, the largest first."""
        return names.outermost([m for ref in self._called.values() if (m := ref()) is not None])

    def paths(self) -> dict[int, str]:
        """The path of each module of the models by its identity."""
        return names.paths(self.found())

    def tensors(self) -> tuple[dict[str, torch.nn.Parameter], dict[str, torch.Tensor]]:
        """The parameters and the buffers of the models by their path."""
        parameters: dict[str, torch.nn.Parameter] = {}
        buffers: dict[str, torch.Tensor] = {}
        paths = self.paths()
        for model in self.found():
            for module in names.modules(model):
                path, mine = paths.get(id(module), ""), vars(module)
                for kind, found in (("_parameters", parameters), ("_buffers", buffers)):
                    held = mine.get(kind, {}).items()
                    found |= {f"{path}.{name}".lstrip("."): one for name, one in held if one is not None}  # type: ignore[arg-type]
        return parameters, buffers

    def path_of(self, module: torch.nn.Module) -> str:
        """The path of a module; "" for the model itself."""
        path = self._paths.get(id(module))
        if path is None:
            self._paths = self.paths()
            path = self._paths.get(id(module))
            if path is None:
                path = names.of_wrapper(module, self._paths, self.wrappers_are_models)
            self._paths[id(module)] = path
        return path


def _outermost(module: torch.nn.Module, holders: dict[int, torch.nn.Module]) -> torch.nn.Module:
    """The module that holds the one that holds `module`, and so on, and that none holds."""
    seen = {id(module)}
    while (holder := holders.get(id(module))) is not None and id(holder) not in seen:
        module = holder
        seen.add(id(module))
    return module
