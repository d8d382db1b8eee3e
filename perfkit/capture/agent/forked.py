"""A process that a watched program forked before it ran a model: armed by itself when it runs one.

Engines fork their workers so. Most forked processes load data, or do nothing with torch: nothing happens in them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from perfkit.capture.agent.around import apart, compiling
from perfkit.capture.agent.models import conditions
from perfkit.capture.agent.patches import Patches
from perfkit.capture.agent.wrappers import tell_dynamo
from perfkit.engines import iteration_of


class Forked:
    """Waits for the first call of a module, or the first mark of an engine's iteration, and calls `arm` before it."""

    def __init__(self, arm: Callable[[], None]) -> None:
        self._arm, self._patches = arm, Patches()
        self._lock = threading.RLock()
        self._waits = True

    def install(self) -> None:
        """Begin to wait."""
        self._patches.wrap(torch.nn.Module, "__call__", self._module_call)
        self._patches.replace(torch.nn.Module, "_wrapped_call_impl", torch.nn.Module.__call__)
        self._patches.wrap(torch.profiler.record_function, "__enter__", self._range)
        tell_dynamo()

    def _module_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(self: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if compiling() or not waiting._waits:
                return original(self, *args, **kwargs)
            return (apart(waiting._end, torch.nn.Module, "__call__") or original)(self, *args, **kwargs)

        waiting = self
        return __call__

    def _range(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __enter__(self: Any) -> Any:
            known = not compiling() and waiting._waits and isinstance(self.name, str)
            if not known or iteration_of(self.name) is None:
                return original(self)
            return (apart(waiting._end, torch.profiler.record_function, "__enter__") or original)(self)

        waiting = self
        return __enter__

    def _end(self, owner: Any, name: str) -> Callable[..., Any] | None:
        """Arm a process that loads no data; return what the call goes to now, None where that is as before."""
        with self._lock, conditions.unseen():
            if not self._waits:
                return None
            self._waits = False
            before = vars(owner)[name]
            self._patches.restore()
            outermost = vars(owner)[name] is not before  # else the program wrapped it, and its wrapper has begun
            tell_dynamo()
            if conditions.in_worker():
                return None
            self._arm()
            return vars(owner)[name] if outermost else None
