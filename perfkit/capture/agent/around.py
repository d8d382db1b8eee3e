"""Wrappers that call something before and after a function of torch, to inform a watcher while Dynamo looks away."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch

from perfkit.capture.agent.patches import Wrapper, skipped_by_dynamo
from perfkit.capture.agent.recording.graphs import GraphCaptures
from perfkit.capture.agent.recording.recorder import Recorder
from perfkit.capture.agent.recording.shortage import Shortage
from perfkit.capture.agent.steps.threads import WatchedThread, WatchedThreads

End = Callable[[], None] | None  # what is due when the wrapped function is left
compiling = torch.compiler.is_compiling
_dynamo = torch._C._dynamo.eval_frame
set_eval_frame = _dynamo.set_eval_frame


class Observer(Protocol):
    """Who is informed: `idle` while nobody watches."""

    recorder: Recorder
    graphs: GraphCaptures
    shortage: Shortage
    threads: WatchedThreads
    idle: bool

    def called(self, thread: WatchedThread, module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
        """Note the call of an outermost module; return whether it is a request that is recorded or timed as a step."""

    def returned(self, thread: WatchedThread) -> None:
        """Note that such a request is answered."""

    def is_apart(self, thread: WatchedThread) -> bool:
        """Return whether what the thread calls now is work next to the recorded step."""

    def note_held(self, optimizer: Any) -> None:
        """An optimizer is about to step while allocations are recorded."""

    def signal(self, kind: str, key: Hashable, role: Hashable = None) -> None:
        """Something that may end a step happened, to the object of `key`."""

    def safe_now(self) -> None:
        """A moment in which a step may end that had to wait for one."""


def apart(function: Callable[..., Any], *args: Any) -> Any:
    """Call what is perfkit's own while Dynamo looks away."""
    active = set_eval_frame(None)
    try:
        return function(*args)
    finally:
        set_eval_frame(active)


skipped_by_dynamo(apart)


def around(watcher: Observer, begin: Callable[[Any, Any], End]) -> Wrapper:
    """A wrapper that calls `begin` with the arguments before the function, and what that returns after it."""

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def around(*args: Any, **kwargs: Any) -> Any:
            """Stand in the place of `original`: Dynamo leaves this frame to Python."""
            if compiling() or watcher.idle:
                return original(*args, **kwargs)
            end = apart(begin, args, kwargs)
            if end is None:
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                apart(end)

        return around

    return wrapper
